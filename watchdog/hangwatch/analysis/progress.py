"""The live view of a job: each rank's progress beside the front of its groups. Pure.

Groups are told apart by torch's name *and* their members: names come from a counter in each process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.model.live import GroupFront, LiveJob, LiveRank, RankProgress
from hangwatch.model.text import format_members

_Key = tuple[str, tuple[int, ...]]
#: Letters of ``/proc/PID/stat`` that say more than a beat does.
_PROCESS_STATES = {"T": "stopped", "t": "stopped", "Z": "lost", "X": "lost", "gone": "lost"}


def word_state(beat: Beat | None, process_state: str | None = None) -> str:
    """One word for a rank by its beat and, where it is known, the kernel's state of its process."""
    if process_state in _PROCESS_STATES:
        return _PROCESS_STATES[process_state]
    if beat is None:
        return "unprobed"
    return "in_flight" if any(g.in_flight for g in beat.groups) else "running"


def live_job(
    job: Job,
    ranks: Sequence[RankIdentity],
    beats: Mapping[int, Beat],
    states: Mapping[int, str],
    now_ns: int,
    frames: Mapping[int, str] | None = None,
) -> LiveJob:
    """The view of one job. ``beats`` and ``frames`` (a rank's top frame) are by pid, ``states`` (a word each) by rank."""
    groups: dict[_Key, dict[int, tuple[BeatGroup, float]]] = {}
    for identity in ranks:
        beat = beats.get(identity.pid)
        for group in beat.groups if beat is not None else ():
            members = groups.setdefault((group.name, group.ranks), {})
            members[identity.rank] = (group, beat.age_s(now_ns) if beat is not None else 0.0)
    labels = _labels(groups, job.world_size)
    fronts = {key: _front(labels[key], key[1], members) for key, members in groups.items()}
    return LiveJob(
        id=job.id,
        world_size=job.world_size,
        launcher=job.launcher,
        command=job.command,
        ranks=tuple(
            LiveRank(
                rank=identity.rank,
                node=identity.node,
                pid=identity.pid,
                state=states.get(identity.rank, "unknown"),
                beat_age_s=beats[identity.pid].age_s(now_ns) if identity.pid in beats else None,
                groups=tuple(
                    _progress(fronts[key], *members[identity.rank])
                    for key, members in groups.items()
                    if identity.rank in members
                ),
                frame=(frames or {}).get(identity.pid),
            )
            for identity in ranks
        ),
        groups=tuple(sorted(fronts.values(), key=_by_interest)),
    )


def group_label(group: BeatGroup, world_size: int | None) -> str:
    """A group among all groups of its job: its label alone if it holds every rank, else with its ranks.

    A job has as many groups called ``mesh_tp`` as it has model replicas, and their numbers must not be compared.
    It depends on nothing but the group, so agents of several nodes say the same.
    """
    whole = not group.ranks or len(group.ranks) == world_size or group.description == "default_pg"
    return group.label if whole else f"{group.label} [{format_members(group.ranks)}]"


def _labels(groups: Mapping[_Key, Mapping[int, tuple[BeatGroup, float]]], world_size: int | None) -> dict[_Key, str]:
    """Each group's name for people; torch's own is added where two groups of the same members bear one name."""
    labels = {key: group_label(next(iter(known.values()))[0], world_size) for key, known in groups.items()}
    taken = Counter(labels.values())
    return {key: label if taken[label] == 1 else f"{label} (group {key[0]})" for key, label in labels.items()}


def _front(label: str, ranks: tuple[int, ...], members: Mapping[int, tuple[BeatGroup, float]]) -> GroupFront:
    enqueued = {rank: max(group.enqueued, 0) for rank, (group, _) in members.items()}
    front = max(enqueued.values())
    waits = [_in_flight_s(group, age_s) for group, age_s in members.values()]
    return GroupFront(
        label=label,
        ranks=ranks or tuple(sorted(members)),
        front=front,
        slowest=min(enqueued.values()),
        completed=min(max(group.completed, 0) for group, _ in members.values()),
        behind=tuple(sorted(rank for rank, number in enqueued.items() if number < front)),
        in_flight_s=max((wait for wait in waits if wait is not None), default=None),
    )


def _progress(front: GroupFront, group: BeatGroup, age_s: float) -> RankProgress:
    enqueued = max(group.enqueued, 0)
    return RankProgress(
        group=front.label,
        enqueued=enqueued,
        completed=max(group.completed, 0),
        behind=front.front - enqueued,
        in_flight_s=_in_flight_s(group, age_s),
    )


def _in_flight_s(group: BeatGroup, age_s: float) -> float | None:
    """For how long it has stood; a beat's age counts, as nothing newer is known."""
    return group.unmoved_s + age_s if group.in_flight else None


def _by_interest(front: GroupFront) -> tuple[float, int, str]:
    """The longest wait first, then the largest group."""
    return (-(front.in_flight_s or 0.0), -len(front.ranks), front.label)
