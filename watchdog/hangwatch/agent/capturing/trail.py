"""Samples of ranks over time: kept while something is suspected, and cut to the time that counts. Pure.

May import the model, ``analysis.ranks``, and what ``capturing.flight_pipes`` keeps of a rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from hangwatch.agent.capturing.flight_pipes import PipedRecord
from hangwatch.analysis.stacks.loops import mark_known
from hangwatch.model.capture import Capture
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import StackSample


@dataclass
class Trail:
    """Samples kept of the ranks while something is suspected, so that *stuck* means so for all that time.

    ``piped``: the records of ranks without the probe, by pid. They cost these ranks something, and are not asked for
    anew with each capture.
    """

    processes: dict[int, list[ProcessSample]] = field(default_factory=dict)
    stacks: dict[int, list[StackSample]] = field(default_factory=dict)
    piped: dict[int, PipedRecord] = field(default_factory=dict)

    def add(self, pid: int, process: ProcessSample | None, stack: StackSample | None) -> None:
        """Append what was seen of one process."""
        if process is not None:
            self.processes.setdefault(pid, []).append(process)
        if stack is not None:
            before = self.stacks.setdefault(pid, [])
            before.append(mark_known(stack, before))

    def stacks_since(self, pid: int, began_ns: int) -> tuple[StackSample, ...]:
        """The stacks of a process, none if it lives and its last one is older than ``began_ns``.

        Where it was is not where it is: a stack that cannot be read any more must not pass for the current one.
        """
        stacks, processes = self.stacks.get(pid, []), self.processes.get(pid, [])
        alive = bool(processes) and not processes[-1].ended
        return () if alive and stacks and stacks[-1].at_ns < began_ns else tuple(stacks)

    def trim(self, since_ns: int) -> None:
        """Forget samples older than ``since_ns``, but never the last two of a process."""
        for processes in self.processes.values():
            del processes[: _outdated([p.at_ns for p in processes], since_ns)]
        for stacks in self.stacks.values():
            del stacks[: _outdated([s.at_ns for s in stacks], since_ns)]


def _outdated(times_ns: Sequence[int], since_ns: int) -> int:
    """How many of the first samples may go: those before ``since_ns``, except the last two of all."""
    return min(sum(at_ns < since_ns for at_ns in times_ns), max(0, len(times_ns) - 2))


def keep_recent(capture: Capture, window_s: float) -> Capture:
    """The capture with the samples of its last ``window_s`` seconds, and the last two of each rank in any case.

    A trail reaches back to when the ranks still moved. Motion is judged over a window, and whoever diagnoses a bundle
    again does not know how long that was: so a bundle holds the samples that counted, and no older ones.
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
