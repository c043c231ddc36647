"""A job that fails: how its ranks end, and what is reported once they have.

May import the capturing and the incidents rooms, the diagnosis and the sources.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hangwatch.agent.capturing.failed import capture_failed
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.agent.incidents.lifecycle import IncidentLifecycle
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.beats import Beat
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.model.collectives import FlightRecord
from hangwatch.model.processes import ExitStatus
from hangwatch.model.text import number_ranks
from hangwatch.sources.discovery.rank_processes import RankProcess, read_rank_process
from hangwatch.sources.flight.pipe import read_own_dump
from hangwatch.sources.proc.ends import ProcessEnds

log = logging.getLogger("hangwatch")


@dataclass
class FailureWatch:
    """Looks at how one job's ranks have ended.

    ``incidents``: reports a failure that their calls explain. ``ends``: sees how processes end; None if nothing does.
    """

    local: LocalScope
    incidents: IncidentLifecycle
    ends: ProcessEnds | None = None
    _processes: dict[int, RankProcess] = field(default_factory=dict)
    _dumped: dict[int, FlightRecord] = field(default_factory=dict)

    def look_for_dumps(self, beats: Mapping[int, Beat]) -> None:
        """Read what NCCL's watchdog has written of ranks that it is about to abort."""
        for one in self.local.ranks.living:
            beat = beats.get(one.pid)
            if one.pid in self._dumped or beat is None or not any(g.backend == "nccl" for g in beat.groups):
                continue
            if one.pid not in self._processes:
                self._processes[one.pid] = read_rank_process(one)
            size = self.local.ranks.job.world_size
            dump = read_own_dump(self._processes[one.pid], int(one.start_time * 1e9), size)
            if dump is not None:
                self._dumped[one.pid] = dump

    async def report(self, job: Job, ranks: Sequence[RankIdentity], at_ns: int) -> None:
        """Report why the job failed, once its ranks are gone, if what they left tells."""
        left, exits, dumped = self.local.read_left(ranks), self.forget(ranks), self._dumped
        self._processes, self._dumped = {}, {}
        silent = [one for one in ranks if one.pid not in left]
        if not dumped and not any(one.how == "terminate" or one.error for one in left.values()):
            _tell_how_to_ask([one.rank for one in silent if _is_aborted(exits.get(one.pid))])
            return
        capture = await capture_failed(job, ranks, left, dumped, exits, at_ns)
        diagnosis = await asyncio.to_thread(diagnose, capture)
        log.debug("the job has failed: %s", diagnosis.verdict.summary)
        if diagnosis.verdict.kind == "failed":
            await self.incidents.report(diagnosis, detected_ns=at_ns)
            await self.incidents.close(time.time_ns())
        else:  # of one that has left nothing, its launcher may have asked first how it ended
            _tell_how_to_ask([one.rank for one in silent if exits.get(one.pid) is None or _is_aborted(exits[one.pid])])

    def forget(self, ranks: Sequence[RankIdentity]) -> dict[int, ExitStatus]:
        """Return how the ranks have ended, by pid, and follow them no longer."""
        return self.ends.take(ranks) if self.ends is not None else {}


def _tell_how_to_ask(aborted: Sequence[int]) -> None:
    """Say how to learn which calls did not match, where ranks were aborted and have left nothing."""
    if aborted:
        log.warning(
            "%s aborted and left no record. If the job's output says op.preamble.length, calls did not match: start the"
            " job again with HANGWATCH_ABORTS=1 to see which",
            number_ranks(aborted),
        )


def _is_aborted(end: ExitStatus | None) -> bool:
    """Return whether a process has ended by SIGABRT, as far as it is known how it ended."""
    return end is not None and end.signal == signal.SIGABRT
