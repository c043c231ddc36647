"""Follows a job while it goes on: keeps what is new of its records, and finds who is late once two looks agree. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hangwatch.model.collectives import DeviceTime, OperationColumns, Operations
from hangwatch.model.live import LastToJoin
from hangwatch.slow.arrival import LateRank
from hangwatch.slow.flight import MOST_CALLS, count_ended, make_calls, on_one_clock
from hangwatch.slow.last import find_last
from hangwatch.slow.sampling import find_late_among, find_waited
from hangwatch.slow.timeline import Call, Streams, find_period

#: What the newest steps show is what holds now; with fewer, a small delay does not show in the noise.
STEPS = 60
#: A look counts if this part of the steps is new. Who was last is counted again if this part of all kept calls is new.
NEW = 1 / 8
#: So many looks have to agree that a rank is late, or that it no longer is.
_LOOKS = 2


class Window:
    """The newest calls of one process, without a gap."""

    def __init__(self, rank: int, most: int) -> None:
        self.rank = rank
        self.calls: deque[Call] = deque(maxlen=most)
        self.new = self.undrawn = 0
        self.telling = True
        self.last = -1

    def add(self, operations: Operations, times: Sequence[DeviceTime | None] = ()) -> None:
        """Take in what a record has that is new. If some is lost between two readings, what was before says no more.

        ``times``: of operations on a device. What has none yet is taken in later, with all that comes after.
        """
        ended = count_ended(operations, times)
        records = _records(operations)[:ended]
        if not len(records) or records[-1] == self.last:
            return
        if records[-1] < self.last:  # the recorder was reset
            self.last = -1
            self.calls.clear()
        if records[0] > self.last + 1:
            self.calls.clear()
            self.new = self.undrawn = 0
        calls = make_calls(self.rank, operations, bisect_right(records, self.last), times[:ended])
        self.telling = calls is not None
        self.calls.extend(calls or ())
        self.new += len(calls or ())
        self.undrawn += len(calls or ())
        self.last = records[-1]

    def of_each_step(self, steps_per_s: float) -> list[Call]:
        """Return the calls that come in most steps; all of them if the pace is not known (0), or counts something else.

        A Trainer that logs every ten steps gathers its loss there. By the record alone, ten steps would be one.
        """
        calls = list(self.calls)
        steps = steps_per_s * (calls[-1].at_ns - calls[0].at_ns) / 1e9 if calls else 0.0
        often = Counter(call.name for call in calls)
        return [call for call in calls if often[call.name] >= steps / 2] or calls


class Process(NamedTuple):
    """A rank's process."""

    rank: int
    pid: int
    start_time: float


@dataclass
class Windows:
    """The newest calls of the processes that are followed.

    ``last_to_join``: of each group, by its key, in all that is kept. ``waited``: by rank, the share of its newest steps for which
    its device was in operations; empty if they were on none. ``steps_per_s``: the pace of the program by its own count; 0 if it
    does not tell.
    """

    last_to_join: Mapping[Hashable, LastToJoin] = field(default_factory=dict)
    waited: Mapping[int, float] = field(default_factory=dict)
    steps_per_s: float = 0.0
    _of: dict[Process, Window] = field(default_factory=dict)

    def keep(self, processes: Collection[Process]) -> None:
        """Follow these processes, and no others: one that was started anew begins anew."""
        most = MOST_CALLS // max(8, len(processes)) // 4
        self._of = {one: self._of.get(one) or Window(one.rank, most) for one in processes}

    def last(self, process: Process) -> int:
        """Return the number of the last operation that is known of a process, -1 if there is none."""
        return self._of[process].last

    def add(self, process: Process, operations: Operations, times: Sequence[DeviceTime | None] = ()) -> None:
        """Take in the record of a process. ``times``: see ``Window.add``."""
        self._of[process].add(operations, times)

    def newest(self) -> Streams | None:
        """Return the newest steps of each process by its own clock; empty if they do not tell, None if too few are new."""
        windows = self._of.values()
        streams = {window.rank: _newest(window.of_each_step(self.steps_per_s)) for window in windows}
        if any(window.new < NEW * len(streams[window.rank]) or not window.calls for window in windows):
            return None
        for window in windows:
            window.new = 0
        if not all(window.telling for window in windows):
            self.last_to_join, self.waited = {}, {}
            return {}
        self.waited = find_waited(streams)
        return streams

    def find_last(self) -> None:
        """Find ``last_to_join``, if enough is new. All times have to be by one clock."""
        windows = self._of.values()
        if any(window.undrawn >= NEW * len(window.calls) for window in windows):
            self.last_to_join = find_last(on_one_clock({window.rank: list(window.calls) for window in windows}))
            for window in windows:
                window.undrawn = 0

    def calls(self, ranks: Collection[int], most: int) -> Streams:
        """Return the newest calls of those of ``ranks`` that are followed, by their own clock; empty if they do not tell."""
        windows = [window for window in self._of.values() if window.rank in ranks]
        return {window.rank: window.of_each_step(self.steps_per_s)[-most:] for window in windows if window.telling}


@dataclass
class Following:
    """One job. ``named``: the late rank of the newest look; ``found``: the one on which two looks agree. None: nobody."""

    found: LateRank | None = None
    named: LateRank | None = None
    _named: deque[int | None] = field(default_factory=lambda: deque(maxlen=_LOOKS + 1))
    _against: int = 0

    def look(self, streams: Streams, *, one_clock: bool = True) -> None:
        """Judge the newest steps of all ranks, which have to be new; empty if they do not tell."""
        self._take(find_late_among(streams, one_clock=one_clock) if streams else None)

    def _take(self, look: LateRank | None) -> None:
        rank = look.rank if look is not None else None
        self.named = look if rank is not None else None
        self._named.append(rank)
        known = self.found.rank if self.found is not None else None
        self._against = self._against + 1 if rank != known else 0
        # Noise may hide it in a look between them, but shows nobody else.
        agreed = self._named.count(rank) >= _LOOKS and set(self._named) <= {None, rank}
        if rank is not None and (rank == known or agreed):
            self.found, self._against = look, 0
        elif self._against >= _LOOKS:
            self.found = None


def _newest(calls: Sequence[Call]) -> Sequence[Call]:
    """Return the calls of the newest steps."""
    return calls[-STEPS * find_period(tuple([call.name for call in calls])) - 1 :]


def _records(operations: Operations) -> memoryview | list[int]:
    """Return the numbers of the operations in their record."""
    if isinstance(operations, OperationColumns):
        return memoryview(operations.records).cast("q")
    return [operation.record_id for operation in operations]
