"""The dumps that torch itself writes of the catalogue's hangs on NCCL, kept for comparing tools that read them.

Each hang runs without hangwatch, with torch's time limit lowered from 10 minutes to ``TIMEOUT_S`` so that it can be waited
for. When the limit is reached, torch's watchdog writes the recorder of every rank whose process still runs
(``TORCH_NCCL_DUMP_ON_TIMEOUT``). Where no collective times out it writes nothing by itself; then it is asked to, through
``TORCH_NCCL_DEBUG_INFO_PIPE_FILE``.
Kept are the entries as torch wrote them; only the names of files have this machine's paths replaced.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from neutral import PACKAGES, neutral
from scenarios.catalogue import HERE, Entry
from scenarios.libraries import link_libraries
from support import JobRunner, wait_for

#: In place of NCCL's 600 s. Ranks of these programs start within a few seconds of each other.
TIMEOUT_S = 15.0
#: Start and hang take some twenty seconds, then the time limit; the programs that set a longer one are asked after this.
_LIMIT_S = 50.0
#: Ranks look once a second whether another has timed out, and write in the second after.
_OTHERS_S = 6.0
#: What torch writes, and what both other tools look for.
PREFIX = "nccl_trace_rank_"

DUMPS = HERE / "dumps"
_INDEX = DUMPS / "index.json"


class Kept(msgspec.Struct, frozen=True):
    """One hang: how many of its ranks wrote a dump, and whether torch had to be asked for them."""

    name: str
    dumps: int
    asked: bool


def keep_dumps(entries: Sequence[Entry], folder: Path) -> Iterator[Kept]:
    """Run hangs one by one and keep their dumps."""
    DUMPS.mkdir(exist_ok=True)
    kept = load_kept()
    for entry in entries:
        written, asked = _run(entry, folder / entry.scenario.name)
        if written:
            _keep(entry, folder / entry.scenario.name, written)
        one = kept[entry.scenario.name] = Kept(entry.scenario.name, len(written), asked)
        ordered = [kept[name] for name in sorted(kept)]
        _INDEX.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")
        yield one


def load_kept() -> dict[str, Kept]:
    """By name, the hangs that were run for their dumps."""
    return (
        {one.name: one for one in msgspec.json.decode(_INDEX.read_bytes(), type=list[Kept])} if _INDEX.exists() else {}
    )


def path(entry: Entry) -> Path:
    """Where the dumps of a hang are kept."""
    return DUMPS / f"{entry.scenario.name}.tar.xz"


def unpack(entry: Entry, folder: Path) -> None:
    """Put the dumps of a hang into a folder, under the names that torch gives them."""
    with tarfile.open(path(entry)) as archive:
        archive.extractall(folder, filter="data")


def _run(entry: Entry, home: Path) -> tuple[list[Path], bool]:
    dumps, pipes = home / "dumps", home / "pipes"
    for one in (home / "tmp", dumps, pipes):
        one.mkdir(parents=True)
    libraries = link_libraries(entry.scenario.needs, entry.python, home / "lib" / "site-packages")
    environment = {
        **entry.full_environment(),
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
        job = runner.start(entry.command(), environment, stdin=reader)

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


def _keep(entry: Entry, home: Path, written: Sequence[Path]) -> None:
    replacements = {
        str(home / "lib" / "site-packages"): PACKAGES,
        f"{entry.python.parents[1]}/": "/opt/venv/",
        str(entry.program.parent): "/srv/train",
        str(home): "/srv/run",
    }
    with tarfile.open(path(entry), "w:xz", format=tarfile.USTAR_FORMAT) as archive:
        for file in written:
            data = _neutral_dump(file.read_bytes(), replacements)
            member = tarfile.TarInfo(file.name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def _neutral_dump(data: bytes, replacements: Mapping[str, str]) -> bytes:
    dump: dict[str, Any] = pickle.loads(data)  # noqa: S301  # written by the job that we started
    for entry in dump["entries"]:
        entry["frames"] = [
            {**frame, "filename": neutral(frame["filename"], replacements)} for frame in entry.get("frames", ())
        ]
    return pickle.dumps(dump, protocol=2)
