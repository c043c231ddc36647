"""From a diagnosis to an incident that is told: the bundle first, then whoever is to know, then what is dear to find out."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import msgspec

from hangwatch.agent.capturing.capture import keep_recent
from hangwatch.agent.incidents.record import Told
from hangwatch.agent.job.diagnose import add_sites
from hangwatch.diagnosis.document import asked_of_nodes, make_incident, missing
from hangwatch.diagnosis.verdict import Diagnosis
from hangwatch.model.incident import Verdict
from hangwatch.outputs.bundle.bundle import BundleError, write_bundle

if TYPE_CHECKING:
    from hangwatch.agent.job.watch import JobWatch

log = logging.getLogger("hangwatch")


def says_more(diagnosis: Diagnosis, told: Verdict) -> bool:
    """Whether a diagnosis takes the place of what was told: what moved stands now, or whose node is lost is known."""
    verdict = diagnosis.verdict
    if verdict.kind == told.kind:
        return False
    silent = {rank for node in diagnosis.case.capture.silent for rank in node.ranks}
    lost = verdict.kind == "rank_lost" and silent.issuperset({*verdict.culprit_ranks, *told.culprit_ranks})
    return told.kind == "straggler" or (told.kind == "stall" and lost)


async def tell(watch: JobWatch, diagnosis: Diagnosis, detected_ns: int, *, same: bool) -> None:
    """Have an incident on disk and told. ``same``: it is the one that was told last, of which more is known now."""
    since = watch.suspector.current
    since_ns = time.time_ns() - int((time.monotonic() - since.since_s) * 1e9) if since else detected_ns
    incident = make_incident(
        diagnosis,
        detected_ns=detected_ns,
        confirmed_ns=time.time_ns(),
        onset_ns=diagnosis.case.still_since_ns or since_ns,
        id=watch.told.incident.id if same and watch.told is not None else None,
    )
    told = await watch.keep(incident, diagnosis)
    leading = watch.fleet is not None and watch.fleet.leads
    if watch.fleet is not None and leading:  # first, so that whoever takes over goes on with this one
        await watch.fleet.incident.spread(told, announced=False)
    await watch.completed()
    watch.completing = asyncio.create_task(_complete(watch, told))  # begins when this has been told
    await watch.announce(told.incident, told.path)
    if watch.fleet is not None and leading:
        await watch.fleet.incident.spread(told, announced=True)


async def _complete(watch: JobWatch, told: Told) -> None:
    """Add every rank's call sites and the node's hardware to a bundle: dearer, so it comes after it was told."""
    if told.path is None:
        return
    capture = await add_sites(watch, told.diagnosis.case.capture, None)
    if not capture.nodes:
        capture = await watch.hardware_here(capture, None)
    incident = msgspec.structs.replace(
        told.incident,
        captured={**told.incident.captured, **asked_of_nodes(capture), "call_sites": True},
        missing=tuple(dict.fromkeys((*told.incident.missing, *missing(capture)))),
    )
    try:
        kept = keep_recent(capture, watch.patience.motion_window_s)
        await asyncio.to_thread(write_bundle, watch.state_dir, incident, kept)
    except BundleError as error:
        log.warning("%s", error)
        return
    told.incident = incident
    if watch.fleet is not None and watch.fleet.leads:
        await watch.fleet.incident.spread(told, announced=True, complete=True)
