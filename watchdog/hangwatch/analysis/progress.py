"""The live view of a job: each rank's progress beside the front of its groups. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hangwatch.model.beats import Beat
from hangwatch.model.capture import Job, RankIdentity
from hangwatch.model.live import LiveJob, LiveRank
from hangwatch.model.progress import GroupFront, LiveProgress, find_front, in_flight_s, read_progress

#: Letters of ``/proc/PID/stat`` that say more than a beat does.
_PROCESS_STATES = {"T": "stopped", "t": "stopped", "Z": "lost", "X": "lost", "gone": "lost"}


def word_state(beat: Beat | None, process_state: str | None = None) -> str:
    """Return one word for a rank by its beat and, if known, the kernel's state of its process."""
    if process_state in _PROCESS_STATES:
        return _PROCESS_STATES[process_state]
    if beat is None:
        return "unprobed"
    waits = (in_flight_s(g.enqueued, g.completed, g.unmoved_s) for g in beat.groups)
    return "running" if all(wait is None for wait in waits) else "communicating"


def live_job(
    job: Job,
    ranks: Sequence[RankIdentity],
    beats: Mapping[int, Beat],
    states: Mapping[int, str],
    now_ns: int,
    frames: Mapping[int, str] | None = None,
) -> LiveJob:
    """Return the view of one job. ``beats`` and ``frames`` (a rank's top frame) are by pid, ``states`` (a word each) by rank."""
    groups: dict[str, dict[int, LiveProgress]] = {}
    shown = []
    for identity in ranks:
        beat = beats.get(identity.pid)
        progress = read_progress(identity.rank, beat, now_ns, job.world_size) if beat is not None else None
        for one in progress.groups if progress is not None else ():
            groups.setdefault(one.label, {})[identity.rank] = one
        shown.append(
            LiveRank(
                rank=identity.rank,
                node=identity.node,
                pid=identity.pid,
                state=states.get(identity.rank, "unknown"),
                beat_age_s=progress.age_s if progress is not None else None,
                groups=progress.groups if progress is not None else (),
                frame=(frames or {}).get(identity.pid),
                name=identity.name,
            )
        )
    return LiveJob(
        id=job.id,
        world_size=job.world_size,
        launcher=job.launcher,
        command=job.command,
        ranks=tuple(shown),
        groups=tuple(sorted(map(find_front, groups.values()), key=_by_interest)),
        role=job.role,
        name=job.name,
        script=job.script,
    )


def _by_interest(front: GroupFront) -> tuple[float, int, str]:
    """Return a key that sorts the longest wait first, then the largest group: the order of a job that is well stays."""
    return (-front.long_wait_s, -len(front.ranks), front.label)
