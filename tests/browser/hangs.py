"""Real recorded hangs as incidents, and at the size of a rack or a fleet."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

sys.path.append(str(Path(__file__).resolve().parents[1] / "causes"))

from hangwatch.agent.document import make_incident
from hangwatch.causes.diagnosis import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident
from hangwatch.model.live import LiveJob, LiveRank, LiveView
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
    """A stall of 4,096 ranks: the verdict on two, with every rank's copies in its place."""
    incident, capture = judged(load("blocked_io"))
    verdict = incident.verdict
    named = _copies(verdict.culprit_ranks, MANY), _copies(verdict.waiting_ranks, MANY)
    ranks = [msgspec.structs.replace(entry, rank=rank) for entry in incident.ranks for rank in MANY[entry.rank]]
    larger = msgspec.structs.replace(
        incident,
        verdict=msgspec.structs.replace(verdict, culprit_ranks=named[0], waiting_ranks=named[1]),
        job=msgspec.structs.replace(incident.job, world_size=4096),
        ranks=tuple(sorted(ranks, key=lambda entry: entry.rank)),
    )
    return larger, enlarged(capture, MANY)


def _copies(ranks: Sequence[int], copies: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    return tuple(sorted(new for rank in ranks for new in copies[rank]))


def view_of(incident: Incident, capture: Capture) -> LiveView:
    """What an agent shows while the incident stands."""
    ranks = tuple(LiveRank(entry.rank, entry.node, entry.pid, entry.state) for entry in incident.ranks)
    job = LiveJob(
        id=incident.job.id, world_size=incident.job.world_size, launcher=incident.job.launcher,
        command=incident.job.command, ranks=ranks, incident=incident, capture=capture,
    )  # fmt: skip
    return LiveView(capture.at_ns, (job,))
