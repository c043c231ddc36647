"""Runs scenarios under ``hangwatch run``, several at once where the machine has room."""

from __future__ import annotations

import importlib.metadata
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hangwatch.outputs.bundle.bundle import list_incidents
from scenarios.catalogue import Entry
from scenarios.judging import Run
from scenarios.libraries import link_libraries
from support import NCCL_BUILT, ROOM, JobRunner, wait_for


def missing_need(entry: Entry) -> str | None:
    """Why a scenario cannot run here, None where it can."""
    if entry.scenario.gpu and not any(Path("/dev").glob("nvidia[0-9]*")):
        return "needs a GPU"
    if entry.scenario.simulated and not NCCL_BUILT.exists():
        return "needs the simulated device: call 'make nccl'"
    for need in entry.scenario.needs:
        try:
            importlib.metadata.version(need)
        except importlib.metadata.PackageNotFoundError:
            return f"needs {need}"
    return None


def run_all(entries: Sequence[Entry], folder: Path, at_once: int) -> Iterator[tuple[Entry, Run]]:
    """Each scenario and what it left, in the order of ``entries``. Bundles stay in ``folder/NAME/state``."""
    with ThreadPoolExecutor(at_once) as pool:
        yield from zip(entries, pool.map(lambda entry: run_one(entry, folder), entries), strict=True)


def run_one(entry: Entry, folder: Path) -> Run:
    """Run one scenario to its end, and end whatever is left of it."""
    home = folder / entry.scenario.name
    (home / "tmp").mkdir(parents=True)
    state = home / "state"
    runner = JobRunner(home / "jobs")
    began = time.monotonic()
    # A debugger's prompt needs an input that stays open and says nothing.
    reader, writer = os.pipe()
    try:
        options = ["--on-hang", "stop", "--stall-after", f"{entry.scenario.patience_s:g}", "--state-dir", str(state)]
        job = runner.hangwatch(
            "run", *options, "--", *entry.command(),
            env={**entry.full_environment(), **device_environment(entry, home), "TMPDIR": str(home / "tmp")}, stdin=reader,
        )  # fmt: skip
        try:
            wait_for(lambda: job.process.poll() is not None, ROOM * entry.scenario.limit_s, poll_s=0.05)
        except AssertionError:
            status = None  # neither an end nor a verdict: that is for the judge
        else:
            status = job.process.returncode
        took_s = time.monotonic() - began
        incidents = tuple(sorted(list_incidents(state), key=lambda incident: incident.detected_at))
        return Run(status, took_s, incidents, job.stdout() + job.stderr())
    finally:
        runner.end_all()
        os.close(reader)
        os.close(writer)


def device_environment(entry: Entry, home: Path) -> dict[str, str | None]:
    """What a job with a device needs in its environment. The suite's other jobs see no GPU."""
    if entry.scenario.simulated:
        libraries = link_libraries(entry.scenario.needs, entry.python, home / "lib" / "site-packages")
        return {"CUDA_VISIBLE_DEVICES": None, "PYTHONPATH": str(libraries)}
    return {"CUDA_VISIBLE_DEVICES": None} if entry.scenario.gpu else {}
