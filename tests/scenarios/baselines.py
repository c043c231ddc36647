"""What there is without hangwatch: torch's own time limit, and torch's own analyzer of flight-recorder dumps.

Each hang is run once without hangwatch's agent and with the time limit of collectives lowered from Gloo's 30 minutes to
``TIMEOUT_S``, so that it can be waited for. The probe is loaded, for one purpose: it hands out the flight recorder's
pickles, which torch writes by itself for NCCL only. ``torchfrtrace`` is given these under the names it expects.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from corpus.catalogue import unpack
from corpus.entries import Entry
from hangwatch.config.directories import make_run_dir, probe_environment, remove_run_dir
from hangwatch.model.beats import Beat
from hangwatch.sources.beats.files import BeatReader
from hangwatch.sources.flight.transport import fetch_dump
from scenarios.launching import HERE, command, environment_of
from support import SOURCE_ROOT, Job, JobRunner, wait_for

#: In place of Gloo's 1,800 s.
TIMEOUT_S = 20.0
#: A rank that has not moved for so long hangs, as far as these small programs go.
_STILL_S = 8.0
#: After the first error the launcher needs a moment to end the others and to say which rank failed first.
_GRACE_S = 40.0
#: It needs seconds; more only where the machine has no time for it.
_ANALYZER_TIME_S = 300.0

_ERROR = re.compile(r"(?:\w+Error|\w+Exception|Signal \d+ \(SIG\w+\)|terminate called)[^\n]*", re.ASCII)
_FIRST_FAILURE = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)", re.DOTALL)


class Baseline(msgspec.Struct, frozen=True):
    """What the existing tools said of one hang.

    ``timeout_says`` is the first error that anything printed, None if nothing did within ``waited_s`` of the start;
    ``timeout_names`` the rank that the launcher gave as the first to fail. ``analyzer_says`` is torchfrtrace's last line.
    """

    name: str
    timeout_says: str | None
    timeout_names: int | None
    waited_s: float
    analyzer_says: str


def run_baselines(entries: Sequence[Entry], folder: Path, at_once: int) -> Iterator[tuple[Entry, Baseline | None]]:
    """One baseline a scenario, None for one that did not get as far as its hang.

    Hung jobs need no CPU time: several at once do not disturb each other.
    """

    def run(entry: Entry) -> tuple[Entry, Baseline | None]:
        try:
            return entry, _run_baseline(entry, folder)
        except AssertionError:
            return entry, None

    with ThreadPoolExecutor(at_once) as pool:
        yield from pool.map(run, entries)


def _run_baseline(entry: Entry, folder: Path) -> Baseline:
    home = folder / entry.scenario.name
    (home / "tmp").mkdir(parents=True)
    dumps = home / "dumps"
    dumps.mkdir()
    runner = JobRunner(home / "jobs")
    run_dir = make_run_dir()
    reader, writer = os.pipe()
    began = time.monotonic()
    try:
        paths = {"PYTHONPATH": os.pathsep.join((str(HERE / "short_timeout"), str(SOURCE_ROOT)))}
        environment = {**environment_of(entry), **probe_environment(run_dir, paths)}
        environment |= {"BASELINE_TIMEOUT_S": str(TIMEOUT_S), "TMPDIR": str(home / "tmp")}
        job = runner.start(command(entry, unpack(entry.family, home / "train")), environment, stdin=reader)
        _Dumper(job, BeatReader(run_dir), dumps).wait()
        with contextlib.suppress(AssertionError):  # that it never ends is what there is to say
            wait_for(lambda: job.process.poll() is not None, TIMEOUT_S + _GRACE_S, poll_s=0.1)
        said = job.stderr() + job.stdout()
        error, first = _ERROR.search(said), _FIRST_FAILURE.search(said)
        return Baseline(
            name=entry.scenario.name,
            timeout_says=error[0][:200] if error else None,
            timeout_names=int(first[1]) if first else None,
            waited_s=round(time.monotonic() - began, 1),
            analyzer_says=_analyze(dumps),
        )
    finally:
        runner.end_all()
        remove_run_dir(run_dir)
        os.close(reader)
        os.close(writer)


class _Dumper:
    """Waits until the job hangs (or ends), then writes what the flight recorders hold, one pickle a rank."""

    def __init__(self, job: Job, reader: BeatReader, folder: Path) -> None:
        self._job = job
        self._reader = reader
        self._folder = folder
        self._marks: object = None
        self._since = time.monotonic()

    def wait(self) -> None:
        wait_for(self._done, 240.0, "the job to hang or end", poll_s=0.25)
        asyncio.run(self._write(self._reader.read()[0]))

    def _done(self) -> bool:
        beats, _ = self._reader.read()
        marks = sorted((pid, g.name, g.enqueued, g.completed) for pid, beat in beats.items() for g in beat.groups)
        if marks != self._marks:
            self._marks, self._since = marks, time.monotonic()
        # A rank that is still importing moves nothing either; beside other jobs that may take a minute.
        begun = any(beat.groups for beat in beats.values()) or time.monotonic() - self._since > 10 * _STILL_S
        return (begun and time.monotonic() - self._since > _STILL_S) or self._job.process.poll() is not None

    async def _write(self, beats: Mapping[int, Beat]) -> None:
        for beat in beats.values():
            found, _ = await fetch_dump(beat, 2.0)
            for dump in found:
                if dump.form == "pickle":
                    (self._folder / f"nccl_trace_rank_{beat.rank}").write_bytes(dump.data)


def _analyze(dumps: Path) -> str:
    if not any(dumps.iterdir()):
        return "no rank could be asked for a dump"
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", str(dumps), "-p", "nccl_trace_rank_"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_ANALYZER_TIME_S)
    except subprocess.TimeoutExpired:
        return f"nothing within {_ANALYZER_TIME_S:.0f} s"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip() and "tabulate" not in line]
    return lines[-1][:200] if lines else f"nothing (exit status {done.returncode})"
