"""The history of a job's hangs in words, for the terminal, the page and notifications. Pure."""

from __future__ import annotations

from hangwatch.model.incident import JobHistory, PastHang
from hangwatch.model.numbers import name_guests
from hangwatch.model.text import number_ranks

#: Earlier hangs that are named; incident.json has more.
_NAMED = 3


def describe_history(history: JobHistory | None) -> list[str]:
    """Return a line on earlier hangs and one on nodes worth excluding; nothing for a job's first hang."""
    if history is None or not history.before:
        return []
    now, number = history.now, history.number
    which = {2: "Second hang of this job", 3: "Third hang of this job"}.get(number, f"Hang {number} of this job")
    step = f" (step {now.step})" if now.step is not None else ""
    restarts = f", after {history.restarts} restart{'s' * (history.restarts != 1)}" if history.restarts else ""
    lines = [f"{which}{step}{restarts}; {_describe_earlier(history)}."]
    if history.exclude_nodes:
        nodes = " and ".join(history.exclude_nodes)
        lines.append(f"Consider excluding {nodes} from the next run: the culprits of 2 of the last 3 hangs ran there.")
    return lines


def _describe_earlier(history: JobHistory) -> str:
    """Return the earlier hangs in words: ``the first had the same culprits``, or each of the last ones."""
    now, before = history.now, history.before
    alike = all((hang.culprit_ranks, hang.nodes) == (now.culprit_ranks, now.nodes) for hang in before)
    if now.culprit_ranks and alike and len(before) == history.number - 1:
        earlier = "the first" if len(before) == 1 else f"the first {len(before)}"
        steps = ", ".join(str(hang.step) for hang in before if hang.step is not None)
        return f"{earlier} had the same culprits" + (f" (step {steps})" if steps else "")
    more = f"; and {history.number - 1 - _NAMED} more" if history.number - 1 > _NAMED else ""
    return f"earlier: {'; '.join(_describe(hang) for hang in reversed(before[-_NAMED:]))}{more}"


def _describe(hang: PastHang) -> str:
    """Return ``step 300, rank 1 on node-a``."""
    who = number_ranks(hang.culprit_ranks) if hang.culprit_ranks else f"{hang.kind} without a culprit"
    who = name_guests(who, hang.names)
    where = f" on {', '.join(hang.nodes)}" if hang.nodes else ""
    return f"step {hang.step}, {who}{where}" if hang.step is not None else f"{who}{where}"
