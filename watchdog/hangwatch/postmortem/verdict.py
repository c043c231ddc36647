"""The verdict on what is left of a job."""

from __future__ import annotations

import msgspec

from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.incident import Incident
from hangwatch.postmortem.artifacts import Artifacts


def diagnose_artifacts(artifacts: Artifacts) -> Incident:
    """The capture diagnosed anew, with the times of the document that the agent wrote: the capture does not have them."""
    capture, before = artifacts.capture, artifacts.before
    incident = make_incident(
        diagnose(capture, min_wait_s=artifacts.min_wait_s),
        detected_ns=capture.at_ns,
        confirmed_ns=capture.at_ns,
        id=before.id if before is not None else None,
    )
    if before is None:
        return incident
    return msgspec.structs.replace(
        incident,
        onset_at=before.onset_at,
        detected_at=before.detected_at,
        confirmed_at=before.confirmed_at,
        ended_at=before.ended_at,
    )
