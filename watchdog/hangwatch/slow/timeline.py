"""When each rank of a job joined its operations, and what it did by itself between them. Pure; imports nothing of ours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, compress

import msgspec

#: What repeats twice may do so by chance.
_LEAST_REPEATS = 3
#: A period this close to the best one is the period: longer ones are its multiples.
_AS_GOOD = 0.995


class Call(msgspec.Struct, frozen=True, gc=False):
    """A rank's part in one operation.

    ``group`` and ``seq``: which operation; ``members``: who takes part. ``name``: what is alike for peers, such as operation
    and sizes. ``left_ns``: when it let the rank go on, and ``work_ns``: the rank's own time before it; None if not recorded.
    ``p2p``: it links stages of a pipeline. ``on_device``: ``at_ns`` is when it began on the device's stream, where each call
    waits for the one before; the rank may have been ready for it sooner.
    """

    group: Hashable
    seq: int
    members: tuple[int, ...]
    name: str
    at_ns: int
    left_ns: int | None = None
    work_ns: int | None = None
    p2p: bool = False
    on_device: bool = False

    @property
    def shared(self) -> tuple[Hashable, int]:
        """What identifies the operation for all its members."""
        return self.group, self.seq


#: The calls of each rank, in order.
Streams = Mapping[int, Sequence[Call]]
#: Own times in ns by rank and place in its stream.
OwnTimes = Mapping[int, Mapping[int, float]]


def are_on_device(streams: Streams) -> bool:
    """Return whether the calls were made on devices; then all were, because the records of a job are of one backend."""
    return next((calls[0].on_device for calls in streams.values() if calls), False)


def find_linked(groups: Iterable[tuple[int, ...]]) -> dict[int, frozenset[int]]:
    """Return the ranks that groups link with each rank, directly or through others."""
    found: dict[int, frozenset[int]] = {}
    for group in groups:
        merged = frozenset(group).union(*(found.get(rank, ()) for rank in group))
        found.update(dict.fromkeys(merged, merged))
    return found


class Pipelines:
    """``of``: by rank, the pipeline that it is a stage of. Stages have different work by design, so they are no peers."""

    def __init__(self, of: Mapping[int, frozenset[int]]) -> None:
        self.of = of
        self._apart: dict[tuple[int, ...], bool] = {}

    def are_apart(self, members: tuple[int, ...]) -> bool:
        """Return whether no two of these ranks are stages of one pipeline."""
        if members not in self._apart:
            self._apart[members] = len({self.of.get(rank, rank) for rank in members}) == len(members)
        return self._apart[members]


def find_pipelines(streams: Streams) -> Pipelines:
    """Return the pipelines: ranks that send to each other are stages of one."""
    sends = (call for calls in streams.values() for call in calls if call.p2p)
    return Pipelines(find_linked({id(call.members): call.members for call in sends}.values()))


class Meeting:
    """One operation. ``times``: when each of its members joined it; ``joined``: when the last one did."""

    __slots__ = ("joined", "times")

    def __init__(self) -> None:
        self.times: dict[int, int] = {}
        self.joined = 0


class Timeline:
    """The operations whose members all have a record of them, and the ranks' own times between.

    By rank: ``calls``, in order; at the same places ``operations``; ``left``: when a call let its rank go on, if it waited;
    ``positions`` in the step; ``own``: the rank's own time before the call, 0 before the first. ``waits``: by position.
    """

    def __init__(self, streams: Streams, *, one_clock: bool = False) -> None:
        self.one_clock = one_clock
        self.on_device = are_on_device(streams)
        self.calls: dict[int, Sequence[Call]] = {}
        self.operations: dict[int, Sequence[Meeting]] = {}
        self._find_operations(streams)
        self.left = {
            rank: [
                operation.joined if call.left_ns is None else call.left_ns
                for call, operation in zip(calls, self.operations[rank], strict=True)
            ]
            for rank, calls in self.calls.items()
        }
        self.period: dict[int, int] = {}
        self.positions: dict[int, list[int]] = {}
        self._find_positions()
        #: The places of the calls that let a rank go on before a call, and not before the one ahead of it.
        self._released: dict[int, list[tuple[int, ...]]] = {}
        both = {rank: self._own_times(rank) for rank in self.calls}
        self.waits = self._find_waits(both)
        self.own = {
            rank: [
                waited if self.waits[position] else alone
                for position, waited, alone in zip(self.positions[rank], *times, strict=True)
            ]
            for rank, times in both.items()
        }

    def _find_operations(self, streams: Streams) -> None:
        known: dict[tuple[Hashable, int], Meeting] = defaultdict(Meeting)
        found = {rank: [known[call.group, call.seq] for call in calls] for rank, calls in streams.items()}
        for rank, calls in streams.items():
            for call, operation in zip(calls, found[rank], strict=True):
                operation.times[rank] = call.at_ns
        for operation in known.values():
            operation.joined = max(operation.times.values())
        for rank, calls in streams.items():
            operations = found[rank]
            whole = [len(call.members) == len(one.times) > 1 for call, one in zip(calls, operations, strict=True)]
            if any(whole):
                self.calls[rank] = list(compress(calls, whole))
                self.operations[rank] = list(compress(operations, whole))

    def _find_positions(self) -> None:
        """Number the positions in a step: two calls have one if the calls of a period before them have the same names.

        So those that follow an evaluation or a checkpoint have positions of their own. Ranks that are alike share a list.
        """
        names: dict[str, int] = {}
        known: dict[tuple[int, ...], int] = {}
        alike: dict[tuple[int, ...], tuple[int, list[int]]] = {}
        for rank, calls in self.calls.items():
            kinds = tuple([names.setdefault(call.name, len(names)) for call in calls])
            if kinds not in alike:
                period = find_period(kinds)
                positions = [
                    known.setdefault(kinds[max(0, at - period) : at + 1], len(known)) for at in range(len(kinds))
                ]
                alike[kinds] = period, positions
            self.period[rank], self.positions[rank] = alike[kinds]

    def _own_times(self, rank: int) -> tuple[list[int], list[int]]:
        """Return the own time before each call if the rank waits for what was before it, and if not."""
        waited, alone, released = [], [], []
        pending: list[int] = []
        left = self.left[rank]
        before = let_go = self.calls[rank][0].at_ns
        for place, call in enumerate(self.calls[rank]):
            at_ns, work_ns = call.at_ns, call.work_ns
            over = tuple([one for one in pending if left[one] <= at_ns])
            if over:
                let_go = max(let_go, *[left[one] for one in over])
                pending = [one for one in pending if left[one] > at_ns]
            waited.append(at_ns - max(before, let_go) if work_ns is None else work_ns)
            alone.append(at_ns - before if work_ns is None else work_ns)
            released.append(over)
            pending.append(place)
            before = at_ns
        self._released[rank] = released
        return waited, alone

    def _find_waits(self, both: Mapping[int, tuple[list[int], list[int]]]) -> dict[int, bool]:
        """Return for each position if ranks wait for the calls before it. ``both``: their own times, if so and if not."""
        places: dict[int, dict[int, list[int]]] = {}
        spreads: tuple[dict[int, float], dict[int, float]] = defaultdict(float), defaultdict(float)
        for rank, positions in self.positions.items():
            if id(positions) not in places:  # ranks that are alike share theirs
                of_position: dict[int, list[int]] = defaultdict(list)
                for place, position in enumerate(positions):
                    of_position[position].append(place)
                places[id(positions)] = of_position
            for position, at in places[id(positions)].items():
                for spread, own in zip(spreads, both[rank], strict=True):
                    spread[position] += _spread([own[place] for place in at])
        recorded = {
            position
            for rank, calls in self.calls.items()
            for position, call in zip(self.positions[rank][1:], calls, strict=False)
            if call.left_ns is not None
        }
        return {
            position: position in recorded or spreads[0][position] < spreads[1][position] for position in spreads[0]
        }

    def replay(self, instead: OwnTimes) -> float:
        """Return when the last call would have been, in ns, with some own times replaced."""
        came: dict[int, list[float]] = {rank: [] for rank in self.calls}
        let_go: dict[int, float] = {rank: calls[0].at_ns for rank, calls in self.calls.items()}
        joined: dict[Meeting, float] = defaultdict(float)
        # Each rank's in their order, whatever its clock does.
        reached = {rank: accumulate((call.at_ns for call in calls), max) for rank, calls in self.calls.items()}
        order = [(at_ns, rank, place) for rank, times in reached.items() for place, at_ns in enumerate(times)]
        for _, rank, place in sorted(order):
            times, operations, left = came[rank], self.operations[rank], self.left[rank]
            for before in self._released[rank][place]:
                operation = operations[before]
                took = left[before] - operation.joined
                # Who has left before the last one came has not waited for it.
                gone = joined[operation] + took if took >= 0 else times[before] + left[before] - operation.times[rank]
                let_go[rank] = max(let_go[rank], gone)
            if place == 0:
                now = let_go[rank]
            else:
                waits = self.waits[self.positions[rank][place]]
                now = max(times[-1], let_go[rank]) if waits else times[-1]
                now += instead[rank][place] if rank in instead and place in instead[rank] else self.own[rank][place]
            times.append(now)
            operation = operations[place]
            joined[operation] = max(joined[operation], now)
        return max(times[-1] for times in came.values())

    def gain(self, instead: OwnTimes, since_ns: float | None = None) -> float:
        """Return the share of the time since ``since_ns`` (None: of all) that other own times would save, 0 at least."""
        began = min(calls[0].at_ns for calls in self.calls.values()) if since_ns is None else since_ns
        took = self._ended() - began
        return max(0.0, 1 - (self.replay(instead) - began) / took) if took > 0 else 0.0

    def _ended(self) -> float:
        """Return when the last call was, in a replay without any change."""
        if any(call.work_ns is not None for call in chain.from_iterable(self.calls.values())):
            return self.replay({})
        return max(calls[-1].at_ns for calls in self.calls.values())


def _spread(ones: Sequence[int]) -> int:
    """Return the sum of all distances from the median."""
    ordered, half = sorted(ones), len(ones) // 2
    return sum(ordered[len(ones) - half :]) - sum(ordered[:half])


@lru_cache(maxsize=8)  # ranks are alike
def find_period(kinds: tuple[Hashable, ...]) -> int:
    """Return after how many calls a step repeats; 1 if nothing repeats.

    A part of the step may repeat in itself, such as the layers of FSDP: so what repeats as a whole is looked for, also if the
    record has too few of it to judge.
    """
    numbers: dict[Hashable, int] = {}
    # A byte a call: a shift and an xor compare all calls at once. More than 256 kinds share bytes, which makes few alike.
    calls = int.from_bytes(bytes([numbers.setdefault(kind, len(numbers)) % 256 for kind in kinds]), "little")
    alike: dict[int, float] = {}
    for period in range(1, len(kinds) // _LEAST_REPEATS + 1):
        count = len(kinds) - period
        differ = (calls >> 8 * period) ^ (calls & ((1 << 8 * count) - 1))
        alike[period] = differ.to_bytes(count, "little").count(0) / count
        if alike[period] == 1:
            return period
    best = max(alike.values(), default=0.0)
    return next((period for period, share in alike.items() if share >= _AS_GOOD * best), 1)
