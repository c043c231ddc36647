"""Real recorded hangs as incidents, and at the size of a rack or a fleet."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

sys.path.extend(str(Path(__file__).resolve().parents[1] / part) for part in ("causes", "outputs"))

from examples import with_text

from hangwatch.analysis.progress import live_job
from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.incident import Incident
from hangwatch.model.live import LiveView
from hangwatch.model.progress import GroupFront
from hangwatch.outputs.web.history import ProgressHistory
from recorded import load
from replicas import enlarged

#: Eight ranks in an evaluation, of which rank 5 has no labels.
EIGHT = {0: (0, 1, 2, 3), 1: (4, 6, 7), 2: (5,)}
#: One rank of 4,096 reads a file that does not answer.
MANY = {0: tuple(rank for rank in range(4096) if rank != 2741), 1: (2741,)}


def judged(capture: Capture) -> tuple[Incident, Capture]:
    """The incident of a capture."""
    diagnosis = diagnose(capture)
    at_ns = capture.at_ns
    return make_incident(diagnosis, detected_ns=at_ns, confirmed_ns=at_ns + 800_000_000), diagnosis.case.capture


def hang_of_eight() -> tuple[Incident, Capture]:
    """A proven deadlock of a Trainer's evaluation on 8 ranks."""
    return judged(enlarged(load("labels_none"), EIGHT))


def hang_of_many() -> tuple[Incident, Capture]:
    """A stall of 4,096 ranks."""
    return judged(enlarged(load("blocked_io"), MANY))


def view_of(incident: Incident, capture: Capture) -> LiveView:
    """What an agent shows while the incident stands."""
    identities = [rank.identity for rank in capture.ranks]
    beats = {rank.identity.pid: _beat(rank, capture.at_ns) for rank in capture.ranks}
    states = {entry.rank: entry.state for entry in incident.ranks}
    job = live_job(incident.job, identities, beats, states, capture.at_ns)
    return LiveView(capture.at_ns, (msgspec.structs.replace(job, incident=incident, capture=capture),))


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
    """What a page has seen that has watched the last two minutes: the numbers rose, and have stood for 34 s."""
    history = ProgressHistory()
    for ago_s in range(120, -1, -2):
        come = min(1.0, (120 - ago_s) / 86)
        jobs = tuple(
            msgspec.structs.replace(job, groups=tuple(_earlier(group, come) for group in job.groups))
            for job in view.jobs
        )
        history.remember(LiveView(view.at_ns - ago_s * 1_000_000_000, jobs))
    return history


def _earlier(group: GroupFront, come: float) -> GroupFront:
    front, slowest = round(group.front * come), round(group.slowest * come)
    return msgspec.structs.replace(group, front=front, slowest=slowest)


def hang_with_text(text: str) -> tuple[Incident, Capture]:
    """A hang in which every name, path, line, local and host is ``text``."""
    incident, capture = with_text(text)
    job = msgspec.structs.replace(incident.job, id=text)
    return msgspec.structs.replace(incident, id="20260528T202637Z-hostile", job=job), capture


def view_of_several() -> LiveView:
    """A node with a job that hangs and one that does not."""
    hang = view_of(*hang_of_eight())
    (calm,) = view_of(*judged(load("slow"))).jobs
    return LiveView(hang.at_ns, (msgspec.structs.replace(calm, id="a-quiet-job", incident=None), *hang.jobs))
