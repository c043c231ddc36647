"""Samples of ranks over time: kept while something is suspected, and cut to the period that counts. Pure.

May import the model, ``analysis.motion``, and what ``capturing.records`` keeps of a rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from hangwatch.agent.capturing.records import PipedRecord
from hangwatch.analysis.motion.loops import mark_known
from hangwatch.model.capture import Capture
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import StackSample


@dataclass
class Trail:
    """Samples of the ranks kept while something is suspected, so that *stuck* means so for all that time.

    ``piped``: the records of ranks without the probe, by pid. A record costs such a rank something, so it is not
    asked again for each capture.
    """

    processes: dict[int, list[ProcessSample]] = field(default_factory=dict)
    stacks: dict[int, list[StackSample]] = field(default_factory=dict)
    piped: dict[int, PipedRecord] = field(default_factory=dict)

    def add(self, pid: int, process: ProcessSample | None, stack: StackSample | None) -> None:
        """Add what was seen of one process. Once the clock is set back, earlier samples have times to come, and go."""
        if (last := self.last(pid)) is not None and process is not None and process.at_ns < last.at_ns:
            self.processes[pid].clear()
            self.stacks.pop(pid, None)
        if process is not None:
            self.processes.setdefault(pid, []).append(process)
        if stack is not None:
            before = self.stacks.setdefault(pid, [])
            before.append(mark_known(stack, before))

    def last(self, pid: int) -> ProcessSample | None:
        """Return the last sample of a process; None if there is none."""
        samples = self.processes.get(pid)
        return samples[-1] if samples else None

    def put_last(self, pid: int, process: ProcessSample) -> None:
        """Replace the last sample of a process."""
        self.processes[pid][-1] = process

    def stacks_since(self, pid: int, began_ns: int) -> tuple[StackSample, ...]:
        """Return the stacks of a process; none if it lives and its last stack is older than ``began_ns``.

        An old stack says where the process was, not where it is: once stacks are unreadable, it must not pass for the
        current one.
        """
        stacks, last = self.stacks.get(pid, []), self.last(pid)
        alive = last is not None and not last.ended
        return () if alive and stacks and stacks[-1].at_ns < began_ns else tuple(stacks)

    def trim(self, since_ns: int) -> None:
        """Forget samples older than ``since_ns``, but never the last two of a process."""
        for processes in self.processes.values():
            del processes[: _outdated([p.at_ns for p in processes], since_ns)]
        for stacks in self.stacks.values():
            del stacks[: _outdated([s.at_ns for s in stacks], since_ns)]


def _outdated(times_ns: Sequence[int], since_ns: int) -> int:
    """Return how many of the first samples may go: those before ``since_ns``, but never the last two."""
    return min(sum(at_ns < since_ns for at_ns in times_ns), max(0, len(times_ns) - 2))


def keep_recent(capture: Capture, window_s: float) -> Capture:
    """Return the capture with the samples of its last ``window_s`` seconds, and at least the last two of each rank.

    A trail reaches back to when the ranks still moved. Motion is judged over a window whose length a later reader of
    the bundle does not know: so a bundle holds only the samples that counted.
    """
    since_ns = int(capture.at_ns - window_s * 1e9)
    ranks = tuple(
        msgspec.structs.replace(
            r,
            processes=r.processes[_outdated([p.at_ns for p in r.processes], since_ns) :],
            stacks=r.stacks[_outdated([s.at_ns for s in r.stacks], since_ns) :],
        )
        for r in capture.ranks
    )
    return msgspec.structs.replace(capture, ranks=ranks)
