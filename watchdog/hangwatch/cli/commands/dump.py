"""``hangwatch dump``: capture and diagnose now, including jobs that were started without hangwatch."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Optional

import msgspec
import typer

from hangwatch.agent.capturing.capture import add_call_sites, capture_job
from hangwatch.agent.capturing.hardware import add_hardware
from hangwatch.agent.capturing.native_stacks import add_native_stacks
from hangwatch.cli.common import Json, StateDir, hang_status, print_json, stderr_console, stdout_console
from hangwatch.cli.settings import ConditionValues, NativeStacks, WithValues
from hangwatch.config.directories import default_state_dir, prepare_state_dir
from hangwatch.config.errors import UserError
from hangwatch.config.settings import Settings
from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, Gap
from hangwatch.model.incident import DUMP_SUFFIX, Incident
from hangwatch.outputs.bundle.bundle import write_bundle
from hangwatch.outputs.terminal.verdict import print_verdict
from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.discovery.found_jobs import FoundJob
from hangwatch.sources.hardware.registry import NodeWatch
from hangwatch.sources.node_view import discover_node

#: There is no history here, so a rank counts as stuck if it does not move during the whole capture; a step may take 2 s.
_SAMPLES = 4
_INTERVAL_S = 1.0
_MIN_WAIT_S = 2.5


def dump(
    pid: Annotated[
        Optional[list[int]],  # noqa: UP045  # typer reads the annotation at run time, on Python 3.10 too
        typer.Option("--pid", metavar="PID", help="Only jobs that this process belongs to; repeatable."),
    ] = None,
    state_dir: StateDir = None,
    with_values: WithValues = False,
    condition_values: ConditionValues = True,
    native_stacks: NativeStacks = False,
    json: Json = False,
) -> None:
    """Capture and diagnose every job on this node now. Exit status 0: no hang found; 1: hang found; 2: no job found."""
    state = prepare_state_dir(state_dir or default_state_dir())
    found, reader = discover_node()
    jobs = [job for job in found.jobs if not pid or _belongs(job, pid)]
    if not jobs:
        for gap in found.gaps:
            stderr_console().print(f"hangwatch: {gap}", markup=False, highlight=False, soft_wrap=True)
        where = f"for process {', '.join(map(str, pid))}" if pid else "on this node"
        raise UserError(f"no ranks of a distributed job found {where}; is the job running on this node, as this user?")
    settings = Settings(with_values=with_values, condition_values=condition_values, native_stacks=native_stacks)
    incidents = []
    for job in jobs:
        incident, capture = asyncio.run(_dump_job(job, reader, found.gaps, settings))
        path = write_bundle(state, incident, capture)
        incidents.append(incident)
        if json:
            print_json(incident)
        else:
            print_verdict(incident, stdout_console(), bundle=path)
    raise typer.Exit(max(hang_status(i) for i in incidents))


def _belongs(job: FoundJob, pids: list[int]) -> bool:
    wanted = set(pids)
    return any(r.pid in wanted for r in job.ranks) or any(_ancestors(r.pid) & wanted for r in job.ranks)


def _ancestors(pid: int) -> set[int]:
    import psutil

    try:
        return {p.pid for p in psutil.Process(pid).parents()}
    except psutil.Error:
        return set()


async def _dump_job(
    job: FoundJob, reader: NodeBeats, gaps: tuple[Gap, ...], settings: Settings
) -> tuple[Incident, Capture]:
    detected_ns = time.time_ns()
    node = NodeWatch()
    await node.begin(job.ranks)
    capture = await capture_job(
        job.job,
        job.ranks,
        reader=reader,
        samples=_SAMPLES,
        interval_s=_INTERVAL_S,
        gaps=gaps,
        settings=settings,
    )
    ranks = [r.rank for r in job.ranks]
    capture = await add_hardware(await add_call_sites(capture, reader, ranks), node)
    if settings.native_stacks:
        capture = await add_native_stacks(capture, ranks)
    diagnosis = diagnose(capture, min_wait_s=_MIN_WAIT_S)
    incident = make_incident(
        diagnosis,
        detected_ns=detected_ns,
        confirmed_ns=time.time_ns(),
        onset_ns=diagnosis.case.still_since_ns,
    )
    return msgspec.structs.replace(incident, id=incident.id + DUMP_SUFFIX), diagnosis.case.capture
