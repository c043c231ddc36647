"""The hangs of one job in order: what is kept of each, which nodes recur, and whether another restart must hang again.

Pure, except that ``HangHistory`` and ``Histories`` keep the hangs, and begin with those in bundles of the same job. May import
the model, the bundles' readers and the names of jobs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hangwatch.model.incident import DUMP_SUFFIX, HANG_KINDS, Incident, JobHistory, PastHang
from hangwatch.model.text import short_path
from hangwatch.outputs.archive import Archive
from hangwatch.outputs.bundle.bundle import BundleError, read_document
from hangwatch.sources.discovery.rank_environment import names_later_runs

#: Earlier hangs that an incident lists: a job that hangs more often has been looked at by then.
_KEPT = 10
#: Jobs whose hangs are kept, the last ones: a node's agent may run for months.
_JOBS_KEPT = 256
#: A node is worth leaving out whose ranks were the culprits in so many of the last so many hangs.
_REPEATED, _OF_LAST = 2, 3
#: A deadlock is the program's doing, on whatever node its culprit runs.
_MAY_BE_THE_NODE = frozenset({"stall", "rank_lost"})


def make_past_hang(incident: Incident, step: int | None) -> PastHang:
    """Return what is kept of a hang. ``step``: the training step that all ranks had reached; None if unknown."""
    verdict = incident.verdict
    nodes = {entry.rank: entry.node for entry in incident.ranks}
    culprits = {nodes[rank] for rank in verdict.culprit_ranks if nodes.get(rank)}
    line = verdict.divergence.culprit if verdict.divergence is not None else None
    return PastHang(
        id=incident.id,
        kind=verdict.kind,
        proven=verdict.proven,
        step=step,
        culprit_ranks=verdict.culprit_ranks,
        nodes=tuple(sorted(culprits)),
        spared=culprits < set(incident.job.nodes),
        place=f"{short_path(line.file)}:{line.line}" if line is not None else "",
        names={rank: verdict.names[rank] for rank in verdict.culprit_ranks if rank in verdict.names},
    )


def find_repeated_nodes(hangs: Sequence[PastHang]) -> tuple[str, ...]:
    """Return the nodes that had the culprits in several of the last hangs.

    Hangs caused by the program are not counted, nor those in which every node of the job had a culprit.
    """
    counts: Counter[str] = Counter()
    for hang in hangs[-_OF_LAST:]:
        if hang.kind in _MAY_BE_THE_NODE and hang.spared:
            counts.update(hang.nodes)
    return tuple(sorted(node for node, count in counts.items() if count >= _REPEATED))


def why_certain_to_recur(history: JobHistory) -> str:
    """Return why a restart cannot help: a proven deadlock came back at the same line and step after hangwatch restarted.

    Empty if it may help. Restarts before this agent do not count: the program may have changed since.
    """
    if not history.before or not history.restarts:
        return ""
    now, before = history.now, history.before[-1]
    proven = all(hang.kind == "deadlock" and hang.proven for hang in (now, before))
    known = now.step is not None and now.place != ""
    if proven and known and (now.step, now.place) == (before.step, before.place):
        return f"proven deadlock at {now.place} in step {now.step}, as before the last restart: it will happen again"
    return ""


def read_history(state_dir: Path, job_id: str) -> JobHistory | None:
    """Return the history that the newest hang of a job in ``state_dir`` has, whichever agent reported it.

    None if there is no such hang, or if later runs of the job have another id.
    """
    if not names_later_runs(job_id):
        return None
    for found in Archive(state_dir).list():
        if found.job != job_id or found.kind not in HANG_KINDS or found.id.endswith(DUMP_SUFFIX):
            continue
        try:
            incident = read_document(state_dir / "incidents" / found.id)
        except BundleError:
            continue
        if incident.history is not None:
            return incident.history
    return None


@dataclass
class HangHistory:
    """The hangs of a job, also of one that is run again under another id: the last ones, and how many there were (``count``).

    ``restarts``: how often it was restarted by this agent. ``read``: what is known of a job, by its id, from before this agent.
    """

    restarts: int = 0
    count: int = 0
    hangs: list[PastHang] = field(default_factory=list)
    read: Callable[[str], JobHistory | None] = lambda _: None
    _recalled: bool = False

    def note_restart(self) -> None:
        """Count a restart by hangwatch."""
        self.restarts += 1

    async def recall(self, job_id: str) -> None:
        """Read once what earlier agents kept: this may be a later run of the job, on other nodes."""
        if self._recalled or self.hangs:
            return
        self._recalled = True
        if (known := await asyncio.to_thread(self.read, job_id)) is not None:
            self.hangs, self.count = [*known.before, known.now], known.number

    def note(self, incident: Incident, step: int | None) -> Incident:
        """Add a hang, and return the incident with the history of its job. Return any other incident unchanged.

        An incident that comes with a history, from another node, replaces ours.
        """
        if incident.verdict.kind not in HANG_KINDS:
            return incident
        if (known := incident.history) is not None:
            self.restarts = max(self.restarts, known.restarts)
            self.hangs, self.count = [*known.before, known.now], known.number
            return incident
        before = [hang for hang in self.hangs if hang.id != incident.id]
        self.count += len(before) == len(self.hangs)  # else it was reported before
        before = before[-_KEPT:]
        self.hangs = [*before, make_past_hang(incident, step)]
        history = JobHistory(
            now=self.hangs[-1],
            before=tuple(before),
            restarts=self.restarts,
            exclude_nodes=find_repeated_nodes(self.hangs),
            hangs=self.count,
        )
        return msgspec.structs.replace(incident, history=history)


@dataclass
class Histories:
    """The hangs of jobs, by their ids. ``one_job``: all are one job, which has another id each time that it is run again.

    ``read``: see ``HangHistory``.
    """

    one_job: bool = False
    read: Callable[[str], JobHistory | None] = lambda _: None
    _by_job: dict[str, HangHistory] = field(default_factory=dict)

    def of(self, job_id: str) -> HangHistory:
        """Return the history of a job. It reads what earlier agents kept only when the job hangs."""
        key = "" if self.one_job else job_id
        found = self._by_job[key] = self._by_job.pop(key, HangHistory(read=self.read))  # the newest is the last
        for oldest in list(self._by_job)[:-_JOBS_KEPT]:
            del self._by_job[oldest]
        return found
