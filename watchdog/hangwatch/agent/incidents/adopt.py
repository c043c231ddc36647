"""An incident that another node has told of: kept here with the ranks of this one, made whole where this one goes on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hangwatch.agent.incidents.record import Told
from hangwatch.analysis.case import build_case
from hangwatch.diagnosis.document import make_incident, of_this_node
from hangwatch.diagnosis.verdict import Diagnosis
from hangwatch.model.capture import Capture
from hangwatch.model.incident import Incident

if TYPE_CHECKING:
    from hangwatch.agent.job.watch import JobWatch


async def adopt(watch: JobWatch, incident: Incident, capture: Capture, node: str) -> None:
    """Keep an incident that another node, ``node``, has told of, with a bundle of this node's own ranks."""
    diagnosis = Diagnosis(incident.verdict, case := build_case(capture), None, None)
    known = watch.told if watch.told is not None and watch.told.incident.id == incident.id else None
    incident = of_this_node(incident, case, node)
    # Nodes that share a home have the whole bundle there already.
    whole = known.path is None if known is not None else (watch.state_dir / "incidents" / incident.id).exists()
    if whole:
        watch.told = Told(incident, diagnosis, None)
    else:
        await watch.keep(incident, diagnosis)
    if watch.told is not None:
        watch.told.heard = watch.told.partial = True
        await watch.hear(watch.told.incident, watch.told.path)


async def make_whole(watch: JobWatch, diagnosis: Diagnosis) -> None:
    """Whoever told of the incident is gone, and the whole bundle with it, perhaps: this is the whole now."""
    if watch.told is None:
        return
    told = watch.told.incident
    entries = make_incident(diagnosis, detected_ns=diagnosis.case.capture.at_ns, confirmed_ns=None, id=told.id)
    await watch.keep(
        msgspec.structs.replace(told, job=entries.job, ranks=entries.ranks, missing=entries.missing), diagnosis
    )
