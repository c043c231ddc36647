"""The dumps that torch itself writes of the catalogue's hangs on NCCL, kept for comparing tools that read them.

Each hang runs without hangwatch, with torch's time limit lowered from 10 minutes to ``TIMEOUT_S`` so that it can be waited
for. When the limit is reached, torch's watchdog writes the recorder of every rank whose process still runs
(``TORCH_NCCL_DUMP_ON_TIMEOUT``). Where no collective times out it writes nothing by itself; then it is asked to, through
``TORCH_NCCL_DEBUG_INFO_PIPE_FILE``.
Kept are the entries as torch wrote them; only the names of files have this machine's paths replaced.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from corpus.catalogue import unpack
from corpus.dumps import PREFIX, Kept, keep_dumps
from corpus.entries import Entry
from neutral import neutral
from scenarios.launching import HERE, command, environment_of, python_of
from scenarios.libraries import link_libraries
from scenarios.recording import replacements
from support import JobRunner, wait_for

#: In place of NCCL's 600 s. Ranks of these programs start within a few seconds of each other.
TIMEOUT_S = 15.0
#: Start and hang take some twenty seconds, then the time limit; the programs that set a longer one are asked after this.
_LIMIT_S = 50.0
#: Ranks look once a second whether another has timed out, and write in the second after.
_OTHERS_S = 6.0


def run_for_dumps(entries: Sequence[Entry], folder: Path) -> Iterator[Kept]:
    """Run hangs one by one and keep their dumps."""
    for entry in entries:
        home = folder / entry.name
        written, asked = _run(entry, home)
        paths = replacements(entry, home)
        kept = Kept(entry.name, len(written), asked)
        keep_dumps(kept, {file.name: _neutral_dump(file.read_bytes(), paths) for file in written})
        yield kept


def _run(entry: Entry, home: Path) -> tuple[list[Path], bool]:
    dumps, pipes = home / "dumps", home / "pipes"
    for one in (home / "tmp", dumps, pipes):
        one.mkdir(parents=True)
    libraries = link_libraries(entry.scenario.needs, python_of(entry), home / "lib" / "site-packages")
    environment = {
        **environment_of(entry),
        "CUDA_VISIBLE_DEVICES": None,
        "PYTHONPATH": os.pathsep.join((str(HERE / "short_timeout"), str(libraries))),
        "BASELINE_NCCL_TIMEOUT_S": str(TIMEOUT_S),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(dumps / PREFIX),
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(pipes / "rank_"),
        "TMPDIR": str(home / "tmp"),
    }
    runner = JobRunner(home / "jobs")
    reader, writer = os.pipe()  # a debugger's prompt needs an input that stays open and says nothing
    asked = False
    try:
        job = runner.start(command(entry, unpack(entry.family, home / "train")), environment, stdin=reader)

        def done() -> bool:
            return any(dumps.iterdir()) or job.process.poll() is not None

        with contextlib.suppress(AssertionError):
            wait_for(done, _LIMIT_S, poll_s=0.25)
        if not any(dumps.iterdir()):
            asked = True
            _ask(pipes)
        with contextlib.suppress(AssertionError):  # ranks that have ended or were stopped write none
            wait_for(lambda: len(list(dumps.iterdir())) == entry.scenario.ranks, _OTHERS_S, poll_s=0.25)
        time.sleep(0.5)  # the last file is whole
        return sorted(dumps.iterdir()), asked
    finally:
        runner.end_all()
        os.close(reader)
        os.close(writer)


def _ask(pipes: Path) -> None:
    for pipe in pipes.iterdir():
        with contextlib.suppress(OSError):  # nobody reads: the rank has ended
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(descriptor, b"1\n")
            os.close(descriptor)


def _neutral_dump(data: bytes, paths: Mapping[str, str]) -> bytes:
    dump: dict[str, Any] = pickle.loads(data)  # noqa: S301  # written by the job that we started
    for entry in dump["entries"]:
        entry["frames"] = [
            {**frame, "filename": neutral(frame["filename"], paths)} for frame in entry.get("frames", ())
        ]
    return pickle.dumps(dump, protocol=2)
