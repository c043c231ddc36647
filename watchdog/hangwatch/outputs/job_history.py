"""The history of a job's hangs in words: what the terminal, the page and the notifications say of it. Pure."""

from __future__ import annotations

from hangwatch.model.incident import JobHistory, PastHang
from hangwatch.model.numbers import name_guests
from hangwatch.model.text import format_ranks

#: Earlier hangs that are named; incident.json has more.
_NAMED = 3


def describe_history(history: JobHistory | None) -> list[str]:
    """One line on earlier hangs, and one on nodes worth leaving out; none for the first hang of a job."""
    if history is None or not history.before:
        return []
    number = history.number
    restarts = f" (restarted {history.restarts} time{'s' if history.restarts != 1 else ''})" if history.restarts else ""
    before = "; ".join(_describe(hang) for hang in reversed(history.before[-_NAMED:]))
    more = f"; and {number - 1 - _NAMED} more" if number - 1 > _NAMED else ""
    lines = [f"Hang {number} of this job{restarts}: {_describe(history.now)}; before: {before}{more}."]
    if history.exclude_nodes:
        nodes = ", ".join(history.exclude_nodes)
        lines.append(f"{nodes} had the culprits of 2 of the last 3 hangs: consider excluding it from the next run.")
    return lines


def _describe(hang: PastHang) -> str:
    """``step 300, rank 1 on node-a``."""
    ranks = hang.culprit_ranks
    who = f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}" if ranks else f"{hang.kind} without a culprit"
    who = name_guests(who, hang.names)
    where = f" on {', '.join(hang.nodes)}" if hang.nodes else ""
    return f"step {hang.step}, {who}{where}" if hang.step is not None else f"{who}{where}"
