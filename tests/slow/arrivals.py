"""Arrivals of jobs that only exist as numbers: seeded, with noise, of several shapes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from hangwatch.slow.follow import Following, Windows
from hangwatch.slow.timeline import Call, Streams

STEP_NS = 100_000_000
#: How often torch's watchdog looks for ends.
POLL_NS = 100_000_000
#: How long a step's work takes instead: by step and rank, in steps. Unless a test says otherwise: the usual time.
Work = Callable[[int, int], float]


@dataclass
class SimulatedJob:
    """A job whose ranks take steps. ``work``: by step and rank, 1.0 is usual. ``noise``: sigma of each piece of work.

    ``shape``: ``ddp`` (four buckets, asynchronous), ``sync`` (one blocking all-reduce), ``tp`` (pairs within data parallel),
    ``fsdp`` (gathers, then reduces, blocking), ``pp`` (two stages, the second has more work), ``grid`` (rows of three within
    columns, seldom a barrier). ``before``: what a rank does alone before a step, joined by all in a barrier.
    """

    size: int
    shape: str = "ddp"
    work: Work = lambda _step, _rank: 1.0
    before: Work | None = None
    noise: float = 0.03
    seed: int = 0
    steps: int = 60
    streams: dict[int, list[Call]] = field(default_factory=dict)

    def run(self) -> dict[int, list[Call]]:
        """Return the calls of all ranks."""
        self._random = random.Random(f"{self.seed} {self.size} {self.shape}")
        self._at = [0.0] * self.size
        self._seq: dict[str, int] = {}
        self.streams = {rank: [] for rank in range(self.size)}
        everybody = [tuple(range(self.size))]
        for step in range(self.steps):
            if self.before is not None and any(self.before(step, rank) for rank in range(self.size)):
                self._at = [at + self.before(step, rank) * STEP_NS for rank, at in enumerate(self._at)]
                self._join("barrier", everybody)
            getattr(self, f"_{self.shape}")(step, everybody)
        return self.streams

    def _ddp(self, step: int, everybody: list[tuple[int, ...]]) -> None:
        self._compute(step, 0.5)
        gone = []
        for bucket in range(4):
            self._compute(step, 0.1)
            gone.append(self._join(f"bucket {bucket}", everybody, waits=False))
        self._at = [max(at, *gone) for at in self._at]
        self._compute(step, 0.1)

    def _sync(self, step: int, everybody: list[tuple[int, ...]]) -> None:
        self._compute(step, 1.0)
        self._join("all_reduce", everybody)

    def _fsdp(self, step: int, everybody: list[tuple[int, ...]]) -> None:
        for op in ("all_gather",) * 4 + ("reduce_scatter",) * 4:
            self._compute(step, 1 / 8)
            self._join(op, everybody)

    def _tp(self, step: int, _everybody: list[tuple[int, ...]]) -> None:
        for _ in range(4):
            self._compute(step, 0.25)
            self._join("tp", [(rank, rank + 1) for rank in range(0, self.size, 2)])
        self._join("dp", [tuple(range(place, self.size, 2)) for place in (0, 1)])

    def _grid(self, step: int, everybody: list[tuple[int, ...]]) -> None:
        for _ in range(4):
            self._compute(step, 0.25)
            self._join("row", [(rank, rank + 1, rank + 2) for rank in range(0, self.size, 3)])
        self._join("column", [tuple(range(place, self.size, 3)) for place in range(3)])
        if step % 50 == 0:
            self._join("barrier", everybody)

    def _pp(self, step: int, everybody: list[tuple[int, ...]]) -> None:
        stages = [tuple(range(stage, self.size, 2)) for stage in (0, 1)]
        for part, stage in zip((0.3, 0.6), stages, strict=True):
            self._compute(step, part, stage)
            self._join("p2p", [(rank, rank + 1) for rank in stages[0]])
        self._join("dp", stages)
        self._join("loss", everybody)

    def _compute(self, step: int, part: float, ranks: Sequence[int] = ()) -> None:
        for rank in ranks or range(self.size):
            noise = self._random.lognormvariate(0, self.noise)
            self._at[rank] += STEP_NS * part * self.work(step, rank) * noise

    def _join(self, name: str, groups: list[tuple[int, ...]], *, waits: bool = True) -> float:
        """Have all ranks join, each in its group. Return when the last of them has joined."""
        number = self._seq[name] = self._seq.get(name, 0) + 1
        for members in groups:
            gone = max(self._at[rank] for rank in members) + 100_000
            for rank in members:
                at = round(self._at[rank] + self._random.expovariate(1 / 20_000))
                self.streams[rank].append(Call((name, members[0]), number, members, name, at))
            for rank in members if waits else ():
                self._at[rank] = gone
        return max(self._at)


def slow(rank: int, share: float, onset: int = 0) -> Work:
    """Work of which one rank does ``share`` more, from a step on."""
    return lambda step, one: 1.0 + share if one == rank and step >= onset else 1.0


def as_timed(streams: Streams) -> Streams:
    """Calls as if they were on devices: how long each took is exact, and when it ended is seen by each rank at another time."""
    ends: dict[object, int] = {}
    for call in (call for calls in streams.values() for call in calls):
        ends[call.shared] = max(ends.get(call.shared, 0), call.at_ns)
    return {rank: list(_on_device(rank, calls, ends)) for rank, calls in streams.items()}


def _on_device(rank: int, calls: Sequence[Call], ends: Mapping[object, int]) -> Iterator[Call]:
    before_ns = 0
    for call in calls:  # on a stream, one begins once the one before it has ended
        end_ns = max(before_ns, ends[call.shared])
        seen_ns = end_ns + POLL_NS - (end_ns + 17_000_000 * rank) % POLL_NS
        began_ns = seen_ns - (end_ns - max(call.at_ns, before_ns))
        yield msgspec.structs.replace(call, at_ns=began_ns, left_ns=seen_ns, on_device=True)
        before_ns = end_ns


def look(windows: Windows, following: Following) -> None:
    """Look at what is kept, if enough of it is new."""
    if (streams := windows.newest()) is not None:
        following.look(streams)
