"""Bundles on disk, as an agent leaves them, from a recorded hang."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hangwatch.diagnosis.document import ended, make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, RankIdentity
from hangwatch.model.incident import Incident
from hangwatch.outputs.bundle.bundle import write_bundle

_CAPTURE = Path(__file__).parents[1] / "fixtures" / "captures" / "group_order.json"


def recorded_capture() -> Capture:
    """Two ranks that create groups in different orders."""
    return msgspec.json.decode(_CAPTURE.read_bytes(), type=Capture)


def make_bundle(
    state: Path,
    name: str,
    *,
    ended: bool,
    changed_s: float | None = None,
    identities: Sequence[RankIdentity] = (),
    job_id: str | None = None,
) -> tuple[Incident, Path]:
    """A bundle under ``name``. ``identities``: which processes its ranks were, instead of the recorded ones."""
    capture = recorded_capture()
    if identities:
        ranks = zip(capture.ranks, identities, strict=True)
        capture = msgspec.structs.replace(
            capture, ranks=tuple(msgspec.structs.replace(rank, identity=one) for rank, one in ranks)
        )
    if job_id is not None:
        capture = msgspec.structs.replace(capture, job=msgspec.structs.replace(capture.job, id=job_id))
    incident = make_incident(diagnose(capture), detected_ns=capture.at_ns, confirmed_ns=capture.at_ns, id=name)
    if ended:
        incident = _ended(incident, capture.at_ns)
    path = write_bundle(state, incident, capture)
    if changed_s is not None:
        os.utime(path / "incident.json", (changed_s, changed_s))
    return incident, path


_ended = ended
