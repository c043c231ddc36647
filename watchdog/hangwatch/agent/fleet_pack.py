"""A capture as it travels: what many ranks have in common is there once. Pure.

A group of a large job has thousands of members, and every operation names its group; ranks of one program stand in the same few
stacks. Groups and stacks are sent as tables, and whoever unpacks many captures shares them between all (``Commons``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress, Ledger
from hangwatch.model.stacks import Frame, StackSample, ThreadStack

_replace = msgspec.structs.replace
_Frames = tuple[Frame, ...]


class PackedGroup(msgspec.Struct, frozen=True, array_like=True):
    """A group. Members that are evenly spaced are ``(first, one past the last, step)``."""

    name: str
    description: str
    spaced: tuple[int, int, int] | None
    ranks: tuple[int, ...] = ()


class PackedStack(msgspec.Struct, frozen=True, array_like=True):
    """A stack sample without its frames: ``frames`` are places in the table, one a thread."""

    sample: StackSample
    frames: tuple[int, ...]


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """A capture in which a group's name is its place in ``groups``, and stacks are apart, a tuple of samples a rank."""

    capture: Capture
    groups: tuple[PackedGroup, ...]
    frames: tuple[msgspec.Raw, ...]
    stacks: tuple[tuple[PackedStack, ...], ...]


@dataclass
class Commons:
    """What unpacked captures share."""

    groups: dict[PackedGroup, Group] = field(default_factory=dict)
    frames: dict[bytes, _Frames] = field(default_factory=dict)


_encoder = msgspec.msgpack.Encoder()
_frames_decoder = msgspec.msgpack.Decoder(_Frames)


def pack(capture: Capture) -> Packed:
    """The capture, ready to be sent."""
    groups: dict[Group, int] = {}
    frames: dict[bytes, int] = {}

    def refer(group: Group) -> Group:
        return Group(str(groups.setdefault(group, len(groups))))

    def pack_stack(sample: StackSample) -> PackedStack:
        places = tuple(frames.setdefault(_encoder.encode(t.frames), len(frames)) for t in sample.threads)
        return PackedStack(StackSample(sample.at_ns, tuple(_replace(t, frames=()) for t in sample.threads)), places)

    stacks = tuple(tuple(map(pack_stack, rank.stacks)) for rank in capture.ranks)
    ranks = tuple(_replace(_with_groups(rank, refer), stacks=()) for rank in capture.ranks)
    return Packed(
        _replace(capture, ranks=ranks), tuple(map(_pack_group, groups)), tuple(map(msgspec.Raw, frames)), stacks
    )


def unpack(packed: Packed, commons: Commons | None = None) -> Capture:
    """What ``pack`` was given. Raises ``ValueError`` where a table lacks what is referred to."""
    commons = commons if commons is not None else Commons()
    groups = [commons.groups.setdefault(g, _unpack_group(g)) for g in packed.groups]
    frames = [_unpack_frames(raw, commons) for raw in packed.frames]
    if len(packed.stacks) != len(packed.capture.ranks):
        raise ValueError("has other stacks than ranks")

    def resolve(group: Group) -> Group:
        return groups[int(group.name)]

    def unpack_stack(stack: PackedStack) -> StackSample:
        threads: tuple[ThreadStack, ...] = tuple(
            _replace(t, frames=frames[place]) for t, place in zip(stack.sample.threads, stack.frames, strict=True)
        )
        return StackSample(stack.sample.at_ns, threads)

    try:
        ranks = tuple(
            _replace(_with_groups(rank, resolve), stacks=tuple(map(unpack_stack, stacks)))
            for rank, stacks in zip(packed.capture.ranks, packed.stacks, strict=True)
        )
    except IndexError as error:
        raise ValueError("refers to what is not in its tables") from error
    return _replace(packed.capture, ranks=ranks)


def _pack_group(group: Group) -> PackedGroup:
    ranks = group.ranks
    step = ranks[1] - ranks[0] if len(ranks) > 2 else 0
    if step > 0:
        spaced = range(ranks[0], ranks[-1] + 1, step)
        if len(spaced) == len(ranks) and tuple(spaced) == ranks:
            return PackedGroup(group.name, group.description, (spaced.start, spaced.stop, step))
    return PackedGroup(group.name, group.description, None, ranks)


def _unpack_group(packed: PackedGroup) -> Group:
    if packed.spaced is None:
        return Group(packed.name, packed.ranks, packed.description)
    start, stop, step = packed.spaced
    if step <= 0 or (stop - start) // step > 1 << 22:
        raise ValueError("has a group that no job has")
    return Group(packed.name, tuple(range(start, stop, step)), packed.description)


def _unpack_frames(raw: msgspec.Raw, commons: Commons) -> _Frames:
    data = bytes(raw)
    if data not in commons.frames:
        try:
            commons.frames[data] = _frames_decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ValueError(f"has a stack that is broken: {error}") from error
    return commons.frames[data]


def _with_groups(rank: RankCapture, change: Callable[[Group], Group]) -> RankCapture:
    """The rank with other values for its groups."""

    def of_progress(progress: tuple[GroupProgress, ...]) -> tuple[GroupProgress, ...]:
        return tuple(_replace(p, group=change(p.group)) for p in progress)

    def of_flight(flight: FlightRecord) -> FlightRecord:
        operations = flight.operations
        if isinstance(operations, Ledger):
            kinds = tuple(_replace(o, group=change(o.group)) for o in operations.kinds)
            lanes = tuple(_replace(lane, group=change(lane.group)) for lane in operations.lanes)
            changed: Ledger | tuple[object, ...] = _replace(operations, kinds=kinds, lanes=lanes)
        else:
            changed = tuple(_replace(o, group=change(o.group)) for o in operations)
        return _replace(flight, operations=changed, progress=of_progress(flight.progress))

    return _replace(
        rank,
        flight=of_flight(rank.flight) if rank.flight is not None else None,
        progress=of_progress(rank.progress) if rank.progress is not None else None,
    )
