"""The hangs of one job, one after the other: what is kept of each, which nodes come again, and whether a hang is certain to.

Pure but for ``HangHistory`` and ``Histories``, which keep them. May import the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import msgspec

from hangwatch.model.incident import HANG_KINDS, Incident, JobHistory, PastHang
from hangwatch.model.text import short_path

#: Earlier hangs that an incident lists: a job that hangs more often has been looked at by then.
_KEPT = 10
#: Jobs whose hangs are kept, the last ones: a node's agent may run for months.
_JOBS_KEPT = 256
#: A node is worth leaving out whose ranks were the culprits in so many of the last so many hangs.
_REPEATED, _OF_LAST = 2, 3
#: A deadlock is the program's doing, on whatever node its culprit runs.
_MAY_BE_THE_NODE = frozenset({"stall", "rank_lost"})


def make_past_hang(incident: Incident, step: int | None) -> PastHang:
    """What is kept of a hang. ``step``: the training step that all ranks had reached."""
    verdict = incident.verdict
    nodes = {entry.rank: entry.node for entry in incident.ranks}
    line = verdict.divergence.culprit if verdict.divergence is not None else None
    return PastHang(
        id=incident.id,
        kind=verdict.kind,
        proven=verdict.proven,
        step=step,
        culprit_ranks=verdict.culprit_ranks,
        nodes=tuple(sorted({nodes[rank] for rank in verdict.culprit_ranks if nodes.get(rank)})),
        place=f"{short_path(line.file)}:{line.line}" if line is not None else "",
        names={rank: verdict.names[rank] for rank in verdict.culprit_ranks if rank in verdict.names},
    )


def find_repeated_nodes(hangs: Sequence[PastHang], job_nodes: Collection[str]) -> tuple[str, ...]:
    """The nodes that had the culprits again and again; never all nodes of the job, and none for a fault of the program."""
    counts: Counter[str] = Counter()
    for hang in hangs[-_OF_LAST:]:
        if hang.kind in _MAY_BE_THE_NODE and set(hang.nodes) < set(job_nodes):
            counts.update(hang.nodes)
    return tuple(sorted(node for node, count in counts.items() if count >= _REPEATED))


def why_certain_to_recur(history: JobHistory) -> str:
    """Why another restart would hang again: a proven deadlock at the same line and step, twice in a row. Empty if it may not."""
    if not history.before:
        return ""
    now, before = history.now, history.before[-1]
    proven = all(hang.kind == "deadlock" and hang.proven for hang in (now, before))
    known = now.step is not None and now.place != ""
    if proven and known and (now.step, now.place) == (before.step, before.place):
        return f"proven deadlock at {now.place} in step {now.step}, as before the last restart: it is certain to come again"
    return ""


@dataclass
class HangHistory:
    """The hangs of a job, also of one that is run again under another id. ``restarts``: how often it was restarted."""

    restarts: int = 0
    hangs: list[PastHang] = field(default_factory=list)

    def note_restart(self) -> None:
        """Hangwatch restarts the job now."""
        self.restarts += 1

    def note(self, incident: Incident, step: int | None) -> Incident:
        """The incident with the history of its job, which it is a part of from now on. What is no hang is left as it is.

        The history that an incident of another node brings along is taken over.
        """
        if incident.verdict.kind not in HANG_KINDS:
            return incident
        if (known := incident.history) is not None:
            self.restarts = max(self.restarts, known.restarts)
            self.hangs = [*known.before, known.now]
            return incident
        before = [hang for hang in self.hangs if hang.id != incident.id][-_KEPT:]
        self.hangs = [*before, make_past_hang(incident, step)]
        history = JobHistory(
            now=self.hangs[-1],
            before=tuple(before),
            restarts=self.restarts,
            exclude_nodes=find_repeated_nodes(self.hangs, incident.job.nodes),
        )
        return msgspec.structs.replace(incident, history=history)


@dataclass
class Histories:
    """The hangs of jobs, by their ids. ``one_job``: all are one job, which has another id each time that it is run again."""

    one_job: bool = False
    _by_job: dict[str, HangHistory] = field(default_factory=dict)

    def of(self, job_id: str) -> HangHistory:
        """The history of a job, empty where it is new."""
        key = "" if self.one_job else job_id
        found = self._by_job[key] = self._by_job.pop(key, HangHistory())  # the newest is the last
        for oldest in list(self._by_job)[:-_JOBS_KEPT]:
            del self._by_job[oldest]
        return found
