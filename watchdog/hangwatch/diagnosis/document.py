"""From a diagnosis to the incident document. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import msgspec

from hangwatch.analysis.case import Case
from hangwatch.analysis.ranks.views import RankView
from hangwatch.diagnosis.slow import describe_lateness
from hangwatch.diagnosis.verdict import Diagnosis
from hangwatch.model.capture import Capture
from hangwatch.model.collectives import FlightRecord
from hangwatch.model.devices import HARDWARE
from hangwatch.model.incident import Incident, JobEntry, RankEntry, RankGroup
from hangwatch.model.numbers import is_guest, name_guests
from hangwatch.model.stacks import Frame, once_a_stack
from hangwatch.model.text import short_path
from hangwatch.model.transforms.names import names_of


def rfc3339(at_ns: int) -> str:
    """Return wall-clock nanoseconds as RFC 3339 in UTC with milliseconds."""
    return datetime.fromtimestamp(at_ns / 1e9, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def incident_id(job_id: str, onset_ns: int) -> str:
    """Return a name that sorts by time and is safe as a folder: ``20261121T024512123Z-jobid``."""
    safe = "".join(c if c.isalnum() or c in "-_" else "-" for c in job_id)[:24].strip("-") or "job"
    return (
        datetime.fromtimestamp(onset_ns / 1e9, timezone.utc).strftime("%Y%m%dT%H%M%S")
        + f"{onset_ns // 1000000 % 1000:03d}Z-{safe}"
    )


def _entry(view: RankView, role: str, *, goes_on: bool = False) -> RankEntry:
    """Return a rank's entry. ``goes_on``: the job does, so a rank that waits for nothing at this moment runs."""
    capture = view.capture
    progress = capture.progress or (capture.flight.progress if capture.flight else ())
    return RankEntry(
        rank=view.rank,
        node=capture.identity.node,
        pid=capture.identity.pid,
        state="running" if goes_on and view.state == "unknown" else view.state,
        groups=tuple(RankGroup(p.group.label, p.enqueued, p.completed) for p in progress),
        stack=_describe(view.frames),
        name=capture.identity.name,
        world=capture.identity.world or role,
        world_rank=capture.identity.world_rank if is_guest(view.rank) else view.rank,
    )


@once_a_stack
def _describe(frames: Sequence[Frame]) -> tuple[str, ...]:
    return tuple(f"{f.function} ({short_path(f.file)}:{f.line})" for f in frames)


def _own_role(capture: Capture) -> str:
    """Return what the job's own ranks do, if there are processes of other worlds to tell them from; else empty."""
    return capture.job.role if any(is_guest(rank.rank) for rank in capture.ranks) else ""


def _has_call_sites(flight: FlightRecord) -> bool:
    """True if a record may show where an operation was called; of a dump on disk only its operations tell."""
    if flight.source == "file":
        return any(operation.frames for operation in flight.operations)
    return flight.source == "pickle"


def missing(capture: Capture) -> tuple[str, ...]:
    """Return what could not be seen, one line each."""
    names = names_of(capture)
    return tuple(dict.fromkeys(name_guests(str(gap), names) for gap in capture.gaps))


def asked_of_nodes(capture: Capture) -> dict[str, bool]:
    """Return for each source of hardware facts that was asked if it answered; empty if the nodes were not asked."""
    failed = {gap.source for gap in capture.gaps}
    looked = {source for node in capture.nodes for source in node.looked}
    return {name.replace(" ", "_"): name in looked for name in HARDWARE if capture.nodes and name in looked | failed}


def asked_natively(capture: Capture) -> dict[str, bool]:
    """Return that there are native stacks; empty if there are none, as nobody has asked for them."""
    return {"native_stacks": True} if any(r.native is not None for r in capture.ranks) else {}


def make_incident(
    diagnosis: Diagnosis,
    *,
    detected_ns: int,
    confirmed_ns: int | None,
    onset_ns: int | None = None,
    id: str | None = None,
) -> Incident:
    """Return the document for a diagnosis. ``onset_ns``: when the wait was first seen, if no recorder dates it."""
    case = diagnosis.case
    capture = case.capture
    role, goes_on = _own_role(capture), capture.slow is not None
    onset = diagnosis.onset_ns or onset_ns or detected_ns
    return Incident(
        id=id or incident_id(capture.job.id, onset),
        job=JobEntry(**{**msgspec.structs.asdict(capture.job), "role": role}),
        onset_at=rfc3339(onset),
        detected_at=rfc3339(detected_ns),
        confirmed_at=rfc3339(confirmed_ns) if confirmed_ns is not None else None,
        ended_at=None,
        verdict=diagnosis.verdict,
        ranks=tuple(_entry(view, role, goes_on=goes_on) for view in case.views.values()),
        captured=captured(capture),
        missing=missing(capture),
        lateness=describe_lateness(capture.slow),
    )


def captured(capture: Capture) -> dict[str, bool]:
    """Return for each source if a capture has something of it."""
    return {
        "flight_recorder": any(r.flight is not None for r in capture.ranks),
        "call_sites": any(r.flight is not None and _has_call_sites(r.flight) for r in capture.ranks),
        "stacks": any(r.stacks for r in capture.ranks),
        "processes": any(r.processes for r in capture.ranks),
        "beats": any(r.beat_age_s is not None for r in capture.ranks),
        **({"training": True} if capture.training is not None else {}),
        **asked_natively(capture),
        **asked_of_nodes(capture),
    }


def of_this_node(incident: Incident, case: Case, node: str) -> Incident:
    """Return the incident that ``node`` has reported, with the ranks of this node, of whose capture ``case`` is."""
    where = f"bundle: it holds only the ranks of this node; the complete one is on {node}"
    return msgspec.structs.replace(
        incident,
        ranks=tuple(_entry(view, incident.job.role) for view in case.views.values()),
        missing=tuple(dict.fromkeys((*incident.missing, *missing(case.capture), where))),
    )


def ended(incident: Incident, at_ns: int) -> Incident:
    """Return the same incident, ended at a wall-clock time in ns."""
    return msgspec.structs.replace(incident, ended_at=rfc3339(at_ns))
