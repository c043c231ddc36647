"""Real recorded hangs as incidents, and at the size of a rack or a fleet."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

sys.path.extend(str(Path(__file__).resolve().parents[1] / part) for part in ("causes", "outputs"))

from examples import AT_NS, with_text

from hangwatch.analysis.progress import live_job
from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Capture, Job, RankCapture, RankIdentity
from hangwatch.model.incident import Incident
from hangwatch.model.live import LiveJob, LiveView
from hangwatch.model.progress import GroupFront
from hangwatch.outputs.web.history import ProgressHistory
from recorded import load
from replicas import enlarged

#: Eight ranks in an evaluation, of which rank 5 has no labels.
EIGHT = {0: (0, 1, 2, 3), 1: (4, 6, 7), 2: (5,)}
#: As torchrun makes one for a job that nobody has named.
UUID = "1f0c1d6e-52a3-4b53-9a0e-2b8f6f0d7c11"


def judged(capture: Capture) -> tuple[Incident, Capture]:
    """The incident of a capture, of a job as torchrun starts it."""
    size = len(capture.ranks)
    command = f"torchrun --nproc-per-node {min(size, 8)} train/reranker.py --epochs 3"
    job = msgspec.structs.replace(
        capture.job, id=UUID, script="/home/ada/reranker/train/reranker.py", command=command, launcher="torchrun"
    )
    diagnosis = diagnose(msgspec.structs.replace(capture, job=job))
    at_ns = capture.at_ns
    return make_incident(diagnosis, detected_ns=at_ns, confirmed_ns=at_ns + 800_000_000), diagnosis.case.capture


def hang_of_eight() -> tuple[Incident, Capture]:
    """A proven deadlock of a Trainer's evaluation on 8 ranks."""
    return judged(enlarged(load("labels_none"), EIGHT))


def hang_of_many(size: int = 4096) -> tuple[Incident, Capture]:
    """A stall of a large job: one rank reads a file that does not answer."""
    slow = size * 2 // 3
    others = tuple(rank for rank in range(size) if rank != slow)
    return judged(enlarged(load("blocked_io"), {0: others, 1: (slow,)}))


def view_of(incident: Incident, capture: Capture) -> LiveView:
    """What an agent shows while the incident stands."""
    identities = [rank.identity for rank in capture.ranks]
    beats = {rank.identity.pid: _beat(rank, capture.at_ns) for rank in capture.ranks}
    states = {entry.rank: entry.state for entry in incident.ranks}
    job = live_job(incident.job, identities, beats, states, capture.at_ns)
    return LiveView(capture.at_ns, (msgspec.structs.replace(job, incident=incident, capture=capture),))


def fleet(size: int = 16384) -> LiveView:
    """The stall of a large job on nodes of eight ranks, each with a group of its own."""
    view = view_of(*hang_of_many(size))
    (job,) = view.jobs
    ranks = tuple(msgspec.structs.replace(one, node=f"gpu-{one.rank // 8:04}") for one in job.ranks)
    groups = tuple(
        GroupFront(f"mesh_tp [{first}-{first + 7}]", tuple(range(first, first + 8)), 42, 42, 42)
        for first in range(0, size, 8)
    )
    job = msgspec.structs.replace(job, ranks=ranks, groups=(*job.groups, *groups))
    return LiveView(view.at_ns, (job,))


def _beat(rank: RankCapture, at_ns: int) -> Beat:
    """The beat that the capture's numbers were in."""
    groups = tuple(
        BeatGroup(
            name=p.group.name, ranks=p.group.ranks, description=p.group.description,
            enqueued=p.enqueued, completed=p.completed, unmoved_s=34.0,
        )
        for p in rank.progress or ()
    )  # fmt: skip
    return Beat(1, rank.identity.pid, 0, 70, at_ns, rank=rank.rank, initialized=True, groups=groups)


def history_of(view: LiveView) -> ProgressHistory:
    """What a page has seen that has watched the last two minutes: the numbers rose, and those of a hang have stood for 34 s."""
    history = ProgressHistory()
    for ago_s in range(120, -1, -2):
        jobs = tuple(_earlier_job(job, ago_s) for job in view.jobs)
        history.remember(LiveView(view.at_ns - ago_s * 1_000_000_000, jobs))
    return history


def _earlier_job(job: LiveJob, ago_s: int) -> LiveJob:
    come = min(1.0, (120 - ago_s) / (86 if job.incident is not None else 120))
    ranks = tuple(
        msgspec.structs.replace(
            rank, groups=tuple(msgspec.structs.replace(g, enqueued=round(g.enqueued * come)) for g in rank.groups)
        )
        for rank in job.ranks
    )
    return msgspec.structs.replace(job, ranks=ranks, groups=tuple(_earlier(group, come) for group in job.groups))


def _earlier(group: GroupFront, come: float) -> GroupFront:
    front, slowest = round(group.front * come), round(group.slowest * come)
    return msgspec.structs.replace(group, front=front, slowest=slowest)


def hang_with_text(text: str) -> tuple[Incident, Capture]:
    """A hang in which every name, path, line, local and host is ``text``."""
    incident, capture = with_text(text)
    job = msgspec.structs.replace(incident.job, id=text)
    return msgspec.structs.replace(incident, id="20260528T202637Z-hostile", job=job), capture


def healthy() -> LiveView:
    """A job of eight ranks that trains: 18 collectives a second, a wait now and then."""
    group = BeatGroup("0", tuple(range(8)), description="default_pg", enqueued=2160, completed=2159, unmoved_s=0.1)
    ranks = tuple(RankIdentity(rank, 4100 + rank, 0.0, "gpu-17") for rank in range(8))
    beats = {one.pid: Beat(1, one.pid, 0, 70, AT_NS, rank=one.rank, initialized=True, groups=(group,)) for one in ranks}
    states = {one.rank: "running" if one.rank % 3 else "communicating" for one in ranks}
    job = Job(
        "8a2d7f5c-9f0e-4c41-8a53-0f6c2b1e9d77", 8, ("gpu-17",), "torchrun", "torchrun --nproc-per-node 8 finetune.py",
        script="/home/ada/finetune/finetune.py",
    )  # fmt: skip
    live = live_job(job, ranks, beats, states, AT_NS)
    return LiveView(AT_NS, (msgspec.structs.replace(live, stall_after_s=34.0, stall_why="as you set it"),))


def view_of_several() -> LiveView:
    """A node with a job that hangs and one that does not."""
    hang = view_of(*hang_of_eight())
    return LiveView(hang.at_ns, (*healthy().jobs, *hang.jobs))


def past_incidents(incident: Incident) -> list[Incident]:
    """The open incident, and others of the node that are over: with scattered culprits, and with none."""
    verdict = incident.verdict
    return [
        incident,
        msgspec.structs.replace(
            incident,
            id="20261121T010000Z-over",
            onset_at="2026-11-21T01:00:00.000Z",
            ended_at="2026-11-21T01:12:30.000Z",
            verdict=msgspec.structs.replace(verdict, kind="stall", proven=False, culprit_ranks=tuple(range(1, 40, 3))),
        ),
        msgspec.structs.replace(
            incident,
            id="20261120T010000Z-loss",
            onset_at="2026-11-20T01:00:00.000Z",
            verdict=msgspec.structs.replace(
                verdict, kind="silent_failure", severity="warning", proven=False, culprit_ranks=(),
                summary="The loss of all ranks has been NaN since step 1,204.",
            ),
        ),
    ]  # fmt: skip
