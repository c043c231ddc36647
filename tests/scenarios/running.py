"""Runs scenarios under ``hangwatch run``, several at once where the machine has room."""

from __future__ import annotations

import importlib.metadata
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from corpus.catalogue import unpack
from corpus.entries import Entry
from hangwatch.outputs.bundle.bundle import list_incidents
from scenarios.judging import Run
from scenarios.launching import HERE, command, environment_of, python_of
from scenarios.libraries import link_libraries
from scenarios.watching import SHORTEST_S
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


def run_one(entry: Entry, folder: Path, recording: Path | None = None) -> Run:
    """Run one scenario to its end, and end whatever is left of it.

    ``recording``: the file into which ``watching`` writes what is seen of it; no verdict ends it then.
    """
    home = folder / entry.scenario.name
    (home / "tmp").mkdir(parents=True)
    state = home / "state"
    runner = JobRunner(home / "jobs")
    began = time.monotonic()
    # A debugger's prompt needs an input that stays open and says nothing.
    reader, writer = os.pipe()
    try:
        patience_s = entry.scenario.patience_s if recording is None else SHORTEST_S
        patience = ["--stall-after", f"{patience_s:g}", "--act-after", "2"]
        options = ["--on-hang", "stop", *patience, "--state-dir", str(state)]
        job = runner.hangwatch(
            "run", *options, "--", *command(entry, unpack(entry.family, home / "train")),
            env={**environment_of(entry), **device_environment(entry, home), "TMPDIR": str(home / "tmp")}, stdin=reader,
            **({"entry": watching(recording)} if recording is not None else {}),
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


def watching(recording: Path) -> str:
    """The Python code that is ``hangwatch`` and writes into the file; the job does not inherit where it is found."""
    paths = [str(HERE.parent), str(HERE.parent.parent)]
    return f"sys.path[:0] = {paths!r}; from scenarios.watching import main; main({str(recording)!r})"


def device_environment(entry: Entry, home: Path) -> dict[str, str | None]:
    """What a job with a device needs in its environment. The suite's other jobs see no GPU."""
    if entry.scenario.simulated:
        libraries = link_libraries(entry.scenario.needs, python_of(entry), home / "lib" / "site-packages")
        return {"CUDA_VISIBLE_DEVICES": None, "PYTHONPATH": str(libraries)}
    return {"CUDA_VISIBLE_DEVICES": None} if entry.scenario.gpu else {}
