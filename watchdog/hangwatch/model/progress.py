"""How far a rank is in its groups now: the one reading of a beat for suspicion, digests, metrics, page and status. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache

import msgspec

from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.collectives import DEFAULT_GROUP, Group
from hangwatch.model.numbers import is_guest
from hangwatch.model.text import format_members

#: Seconds: a wait longer than a typical step is highlighted. For display only, never for a verdict.
LONG_S = 5.0


class LiveProgress(msgspec.Struct, frozen=True):
    """One rank in one group, by its last beat or digest.

    ``key``: ``Group.key``. ``label``: tells the groups of a job apart. ``ranks``: its members, empty if not known.
    ``enqueued`` and ``completed``: sequence numbers (0: none yet). ``in_flight_s``: how long an operation has been in
    flight without progress; None if none is.
    """

    key: str
    label: str
    ranks: tuple[int, ...]
    enqueued: int
    completed: int
    in_flight_s: float | None = None


class RankProgress(msgspec.Struct, frozen=True, dict=True):
    """One rank in all its groups. ``age_s``: the age of the beat."""

    rank: int
    groups: tuple[LiveProgress, ...] = ()
    age_s: float = 0.0

    @cached_property
    def in_flight(self) -> dict[str, tuple[int, float]]:
        """Return the groups with an operation in flight, by key.

        The values are the last number enqueued, and for how many seconds.
        """
        return {p.key: (p.enqueued, p.in_flight_s) for p in self.groups if p.in_flight_s is not None}

    @cached_property
    def counters(self) -> tuple[tuple[str, int, int], ...]:
        """Return all its numbers: if they differ from earlier ones, the rank has moved."""
        return tuple((p.key, p.enqueued, p.completed) for p in self.groups)


class GroupFront(msgspec.Struct, frozen=True):
    """How far a group is, by its visible members.

    ``front``: the highest sequence number that any member has enqueued; ``slowest``: the lowest; ``completed``: the
    lowest that has completed. ``behind``: the ranks that are not at the front. ``key``: ``Group.key``.
    """

    label: str
    ranks: tuple[int, ...]
    front: int
    slowest: int
    completed: int
    behind: tuple[int, ...] = ()
    in_flight_s: float | None = None
    key: str = ""

    @property
    def long_wait_s(self) -> float:
        """How long an operation has been in flight, in seconds, if that is long; else 0."""
        return self.in_flight_s if self.in_flight_s is not None and self.in_flight_s >= LONG_S else 0.0

    def behind_by(self, progress: LiveProgress) -> int:
        """Return how many operations a member is behind the front."""
        return self.front - progress.enqueued


def read_progress(rank: int, beat: Beat, now_ns: int, world_size: int | None = None) -> RankProgress:
    """Return the progress of a rank by its beat.

    The beat's age counts as time in flight: nothing newer is known. ``world_size``: tells groups of all ranks apart
    from others, in labels.
    """
    age_s = beat.age_s(now_ns)
    groups = []
    for group, (key, label) in zip(beat.groups, _name_groups(beat.groups, world_size), strict=True):
        enqueued, completed = max(group.enqueued, 0), max(group.completed, 0)
        waited_s = in_flight_s(enqueued, completed, group.unmoved_s + age_s)
        groups.append(LiveProgress(key, label, group.ranks, enqueued, completed, waited_s))
    return RankProgress(rank, tuple(groups), age_s)


def in_flight_s(enqueued: int, completed: int, unmoved_s: float) -> float | None:
    """Return how long an operation has been in flight, in seconds; None if none is.

    That is ``unmoved_s``, how long neither number has changed.
    """
    return unmoved_s if enqueued > max(completed, 0) else None


def find_front(members: Mapping[int, LiveProgress]) -> GroupFront:
    """Return how far a group is, by its members' progress; at least one member is required."""
    first = next(iter(members.values()))
    enqueued = {rank: progress.enqueued for rank, progress in members.items()}
    front = max(enqueued.values())
    waits = (progress.in_flight_s for progress in members.values())
    return GroupFront(
        label=first.label,
        ranks=first.ranks or tuple(sorted(members)),
        front=front,
        slowest=min(enqueued.values()),
        completed=min(progress.completed for progress in members.values()),
        behind=tuple(sorted(rank for rank, number in enqueued.items() if number < front)),
        in_flight_s=max((wait for wait in waits if wait is not None), default=None),
        key=first.key,
    )


def _name_groups(groups: Sequence[BeatGroup], world_size: int | None) -> Iterator[tuple[str, str]]:
    """Yield the key of each group of a rank, and a label unique among them.

    If two would have one label, torch's name is added. A group that two backends serve occurs twice.
    """
    names = [_name_group(group.name, group.ranks, group.description, world_size) for group in groups]
    taken = Counter(label for _, label in set(names))
    rows = Counter[str]()
    for group, (key, label) in zip(groups, names, strict=True):
        rows[key] += 1
        row = f"#{rows[key]}" if rows[key] > 1 else ""
        yield key, (label if taken[label] == 1 else f"{label} (group {group.name})") + row


@lru_cache(maxsize=1 << 12)
def _name_group(name: str, ranks: tuple[int, ...], description: str, world_size: int | None) -> tuple[str, str]:
    """Return ``Group.key`` of a group, and its label among all groups of its job: with its ranks, unless it has every rank.

    A job has as many groups called ``mesh_tp`` as it has model replicas, and their numbers must not be compared. The
    label depends only on the group, so agents of several nodes use the same.
    """
    group = Group(name, ranks, description)
    whole = not ranks or len(ranks) == world_size or description == DEFAULT_GROUP or any(map(is_guest, ranks))
    return group.key, group.label if whole else f"{group.label} [{format_members(ranks)}]"
