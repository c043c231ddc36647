"""The verdict on what is left of a job."""

from __future__ import annotations

import msgspec

from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.incident import HANG_KINDS, Incident
from hangwatch.postmortem.artifacts import Artifacts
from hangwatch.slow.flight import make_streams
from hangwatch.slow.sampling import find_late_among
from hangwatch.slow.words import describe


def diagnose_artifacts(artifacts: Artifacts) -> Incident:
    """Return the incident of the capture, diagnosed anew; of a job that does not hang, also who was late.

    Its times are those of the agent's document, because the capture lacks them.
    """
    capture, before = artifacts.capture, artifacts.before
    incident = make_incident(
        diagnose(capture, min_wait_s=artifacts.min_wait_s),
        detected_ns=capture.at_ns,
        confirmed_ns=capture.at_ns,
        id=before.id if before is not None else None,
    )
    known = incident.lateness is not None or incident.verdict.kind in HANG_KINDS
    if not known and (found := find_late_among(make_streams(capture.ranks), one_clock=False)) is not None:
        incident = msgspec.structs.replace(incident, lateness=describe(found))
    if before is None:
        return incident
    return msgspec.structs.replace(
        incident,
        onset_at=before.onset_at,
        detected_at=before.detected_at,
        confirmed_at=before.confirmed_at,
        ended_at=before.ended_at,
    )
