"""Packs captures for storage and transport: what many ranks have in common is stored once. Pure.

A group of a large job has thousands of members, and every operation names its group; ranks of one program have the
same few stacks. Both are put into tables, and a packed rank refers to places in them. In a bundle these tables are
files (``outputs.bundle``). What a node sends contains them (``Packed``), and a receiver of many shares them between
all (``Commons``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress, OperationColumns
from hangwatch.model.stacks import Frame, SharedFrames, StackSample

_replace = msgspec.structs.replace
Frames = tuple[Frame, ...]


class PackedGroup(msgspec.Struct, frozen=True, array_like=True):
    """A group. Members that are evenly spaced are ``(first, one past the last, step)``."""

    name: str
    description: str
    spaced: tuple[int, int, int] | None
    ranks: tuple[int, ...] = ()
    outside: tuple[int, ...] = ()


class PackedStack(msgspec.Struct, frozen=True, array_like=True):
    """A stack sample without its frames. ``frames``: places in the table, one per thread."""

    sample: StackSample
    frames: tuple[int, ...]


class PackedRank(msgspec.Struct, frozen=True, array_like=True):
    """A rank whose groups are named by their place in the table, and whose stacks are stored separately."""

    rank: RankCapture
    stacks: tuple[PackedStack, ...]
    native: PackedStack | None = None


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """A capture for transport: its ranks, and the tables that they refer to; ``frames`` are MessagePack."""

    capture: Capture
    ranks: tuple[PackedRank, ...]
    groups: tuple[PackedGroup, ...]
    frames: tuple[msgspec.Raw, ...]


class Packer:
    """Packs ranks, and keeps the tables that they refer to, complete once the last rank is packed.

    ``encode``: returns the bytes of a stack, which also identify it.
    """

    def __init__(self, encode: Callable[[Frames], bytes]) -> None:
        self._encode = encode
        self._groups: dict[Group, int] = {}
        self._frames: dict[bytes, int] = {}
        # Captures that were unpacked together share their groups and stacks: these need not be compared again, which takes
        # long for groups of thousands. Each is kept with its place, so that no other can get its identity.
        self._met_groups: dict[int, tuple[Group, Group]] = {}
        self._met_frames: dict[int, tuple[Frames, int]] = {}

    @property
    def groups(self) -> tuple[PackedGroup, ...]:
        """The table of groups."""
        return tuple(map(_pack_group, self._groups))

    @property
    def frames(self) -> Sequence[bytes]:
        """The table of stacks, encoded."""
        return tuple(self._frames)

    def pack(self, rank: RankCapture) -> PackedRank:
        """Return a rank with places for its groups and stacks."""
        stacks = tuple(map(self._pack_stack, rank.stacks))
        native = self._pack_stack(rank.native) if rank.native is not None else None
        return PackedRank(_replace(_with_groups(rank, self._refer), stacks=(), native=None), stacks, native)

    def _refer(self, group: Group) -> Group:
        met = self._met_groups.get(id(group))
        if met is None:
            place = self._groups.setdefault(group, len(self._groups))
            met = self._met_groups[id(group)] = (group, Group(str(place)))
        return met[1]

    def _place(self, frames: Frames) -> int:
        met = self._met_frames.get(id(frames))
        if met is None:
            place = self._frames.setdefault(self._encode(frames), len(self._frames))
            met = self._met_frames[id(frames)] = (frames, place)
        return met[1]

    def _pack_stack(self, sample: StackSample) -> PackedStack:
        places = tuple(self._place(t.frames) for t in sample.threads)
        return PackedStack(StackSample(sample.at_ns, tuple(_replace(t, frames=()) for t in sample.threads)), places)


def unpack_rank(
    packed: PackedRank, groups: Sequence[Group], frames: Sequence[Frames] | Mapping[int, Frames]
) -> RankCapture:
    """Return the rank that was packed. Raises ``ValueError`` if the tables lack what it refers to."""

    def resolve(group: Group) -> Group:
        return groups[int(group.name)]

    def unpack_stack(stack: PackedStack) -> StackSample:
        threads = zip(stack.sample.threads, stack.frames, strict=True)
        return StackSample(stack.sample.at_ns, tuple(_replace(t, frames=frames[place]) for t, place in threads))

    try:
        native = unpack_stack(packed.native) if packed.native is not None else None
        stacks = tuple(map(unpack_stack, packed.stacks))
        return _replace(_with_groups(packed.rank, resolve), stacks=stacks, native=native)
    except LookupError as error:
        raise ValueError("refers to what is not in its tables") from error


def unpack_groups(packed: Iterable[PackedGroup], known: dict[PackedGroup, Group] | None = None) -> list[Group]:
    """Return the table of groups; groups in ``known`` are reused, others added to it."""
    known = known if known is not None else {}
    return [known[g] if g in known else known.setdefault(g, _unpack_group(g)) for g in packed]


_encode = msgspec.msgpack.Encoder().encode
_frames_decoder = msgspec.msgpack.Decoder(Frames)


@dataclass
class Commons:
    """What unpacked captures share."""

    groups: dict[PackedGroup, Group] = field(default_factory=dict)
    frames: dict[bytes, Frames] = field(default_factory=dict)


def pack(capture: Capture) -> Packed:
    """Return the capture, ready to be sent."""
    packer = Packer(_encode)
    ranks = tuple(map(packer.pack, capture.ranks))
    return Packed(_replace(capture, ranks=()), ranks, packer.groups, tuple(map(msgspec.Raw, packer.frames)))


def unpack(packed: Packed, commons: Commons | None = None) -> Capture:
    """Return what ``pack`` was given. Raises ``ValueError`` if a table is broken, or lacks what is referred to."""
    commons = commons if commons is not None else Commons()
    groups = unpack_groups(packed.groups, commons.groups)
    frames = [_unpack_frames(raw, commons) for raw in packed.frames]
    return _replace(packed.capture, ranks=tuple(unpack_rank(rank, groups, frames) for rank in packed.ranks))


def _unpack_frames(raw: msgspec.Raw, commons: Commons) -> Frames:
    data = bytes(raw)
    if data not in commons.frames:
        try:
            commons.frames[data] = SharedFrames(_frames_decoder.decode(data))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"has a stack that is broken: {error}") from error
    return commons.frames[data]


def _pack_group(group: Group) -> PackedGroup:
    ranks = group.ranks
    step = ranks[1] - ranks[0] if len(ranks) > 2 else 0
    if step > 0:
        spaced = range(ranks[0], ranks[-1] + 1, step)
        if len(spaced) == len(ranks) and tuple(spaced) == ranks:
            return PackedGroup(group.name, group.description, (spaced.start, spaced.stop, step), (), group.outside)
    return PackedGroup(group.name, group.description, None, ranks, group.outside)


def _unpack_group(packed: PackedGroup) -> Group:
    if packed.spaced is None:
        return Group(packed.name, packed.ranks, packed.description, packed.outside)
    start, stop, step = packed.spaced
    if step <= 0 or (stop - start) // step > 1 << 22:
        raise ValueError("has a group that no job has")
    return Group(packed.name, tuple(range(start, stop, step)), packed.description, packed.outside)


def _with_groups(rank: RankCapture, change: Callable[[Group], Group]) -> RankCapture:
    """Return the rank with each group replaced by ``change``."""

    def of_progress(progress: tuple[GroupProgress, ...]) -> tuple[GroupProgress, ...]:
        return tuple(_replace(p, group=change(p.group)) for p in progress)

    def of_flight(flight: FlightRecord) -> FlightRecord:
        operations = flight.operations
        if isinstance(operations, OperationColumns):
            kinds = tuple(_replace(o, group=change(o.group)) for o in operations.kinds)
            histories = tuple(_replace(history, group=change(history.group)) for history in operations.histories)
            changed: OperationColumns | tuple[object, ...] = _replace(operations, kinds=kinds, histories=histories)
        else:
            changed = tuple(_replace(o, group=change(o.group)) for o in operations)
        return _replace(flight, operations=changed, progress=of_progress(flight.progress))

    return _replace(
        rank,
        flight=of_flight(rank.flight) if rank.flight is not None else None,
        progress=of_progress(rank.progress) if rank.progress is not None else None,
    )
