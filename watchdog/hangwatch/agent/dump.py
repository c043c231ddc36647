"""One capture and verdict of a job now, without an agent that has watched it, for ``hangwatch dump``."""

from __future__ import annotations

import time

import msgspec

from hangwatch.agent.capturing.capture import JobCapture
from hangwatch.agent.capturing.hardware import add_hardware
from hangwatch.agent.capturing.native_stacks import add_native_stacks
from hangwatch.agent.capturing.records import add_call_sites
from hangwatch.analysis.patience import STEP_S
from hangwatch.config.settings import Settings
from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.hardware.sources.registry import NodeWatch
from hangwatch.model.capture import Capture, Gap
from hangwatch.model.incident import DUMP_SUFFIX, Incident
from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.discovery.found_jobs import FoundJob

#: There is no history here, so a rank counts as stuck if it does not move during the whole capture.
_SAMPLES = 4
_INTERVAL_S = 1.0


async def dump_job(
    job: FoundJob, reader: NodeBeats, gaps: tuple[Gap, ...], settings: Settings
) -> tuple[Incident, Capture]:
    """Return the incident of a job as it is now, and its capture.

    ``gaps``: what could not be seen on this node.
    """
    detected_ns = time.time_ns()
    node = NodeWatch()
    await node.begin(job.ranks)
    capture = await JobCapture(
        job.job,
        job.ranks,
        reader=reader,
        samples=_SAMPLES,
        interval_s=_INTERVAL_S,
        gaps=gaps,
        settings=settings,
    ).take()
    ranks = [r.rank for r in job.ranks]
    capture = await add_hardware(await add_call_sites(capture, reader, ranks), node)
    if settings.native_stacks:
        capture = await add_native_stacks(capture, ranks)
    diagnosis = diagnose(capture, min_wait_s=STEP_S)
    incident = make_incident(
        diagnosis,
        detected_ns=detected_ns,
        confirmed_ns=time.time_ns(),
        onset_ns=diagnosis.case.still_since_ns,
    )
    return msgspec.structs.replace(incident, id=incident.id + DUMP_SUFFIX), diagnosis.case.capture
