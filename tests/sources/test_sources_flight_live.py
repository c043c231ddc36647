"""The flight recorder of real ranks with the real probe: with the interpreter free, held, stopped, and gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap
from hangwatch.model.collectives import FlightRecord
from hangwatch.sources.beats.files import BeatReader
from hangwatch.sources.flight.recorder import fetch_flight, progress_of
from support import SOURCE_ROOT, JobRunner, wait_for

PROGRAM = Path(__file__).resolve().parent / "flight_program.py"


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """A run directory with a short path, as sockets need."""
    folder = Path(tempfile.mkdtemp(prefix="hw"))
    (folder / "ranks").mkdir(mode=0o700)
    yield folder
    shutil.rmtree(folder)


def start(jobs: JobRunner, tmp_path: Path, run_dir: Path, mode: str) -> dict[int, Beat]:
    """Two probed ranks with an operation in flight; their beats by rank."""
    site = SOURCE_ROOT / "hangwatch" / "probe" / "site"
    jobs.torchrun(PROGRAM, str(tmp_path), mode, env={"PYTHONPATH": str(site), "HANGWATCH_RUN_DIR": str(run_dir)})
    wait_for(lambda: all((tmp_path / str(rank)).exists() for rank in (0, 1)), 60, "both ranks")
    reader = BeatReader(run_dir)

    def ready() -> dict[int, Beat] | None:
        beats = {beat.rank: beat for beat in reader.read()[0].values() if beat.rank is not None}
        in_flight = any(group.enqueued == 2 > group.completed for group in beats[0].groups) if 0 in beats else False
        return {rank: beats[rank] for rank in (0, 1)} if in_flight and 1 in beats and beats[1].control else None

    beats = wait_for(ready, 30, "beats that show the operation in flight")
    assert beats is not None
    return beats


def fetch(beat: Beat, **options: Any) -> FlightRecord | Gap:
    """What the rank says."""
    assert beat.rank is not None
    return asyncio.run(fetch_flight(beat, rank=beat.rank, **options))


@pytest.fixture
def deep_run_dir(run_dir: Path) -> Path:
    """A run directory whose sockets have names too long for an address."""
    deep = run_dir / ("d" * 100)
    (deep / "ranks").mkdir(parents=True, mode=0o700)
    return deep


def test_ranks_that_answer(jobs: JobRunner, tmp_path: Path, deep_run_dir: Path) -> None:
    """With the interpreter free the record has call sites and members; without them it comes from the worker server; then
    a stopped rank and one that is gone are distinguished. Socket paths may be long."""
    beats = start(jobs, tmp_path, deep_run_dir, "sleep")
    record = fetch(beats[0], timeout_s=20)
    assert isinstance(record, FlightRecord)
    assert record.source == "pickle"
    assert [(o.op, o.group.ranks, o.completed) for o in record.operations] == [
        ("all_reduce", (0, 1), True),
        ("broadcast", (0, 1), True),
        ("all_reduce", (0, 1), False),
    ]
    assert [o.group.label for o in record.operations] == ["default_pg", "pair", "default_pg"]
    frames = record.operations[-1].frames
    assert frames is not None
    assert "main" in {frame.function for frame in frames if frame.file == str(PROGRAM)}
    progress = {p.group.name: (p.enqueued, p.completed) for p in record.progress}
    assert progress["0"] == (2, 1)
    assert sorted(progress.values()) == [(0, 0), (1, 1), (2, 1)]
    assert {p.group.name: (p.enqueued, p.completed) for p in progress_of(beats[0])} == progress

    plain = fetch(beats[0], timeout_s=20, call_sites=False)
    assert isinstance(plain, FlightRecord)
    assert plain.source == "json"
    assert plain.operations == tuple(msgspec.structs.replace(o, frames=None) for o in record.operations)
    other = fetch(beats[1], timeout_s=20)
    assert isinstance(other, FlightRecord)
    assert next(p for p in other.progress if p.group.name == "0").enqueued == 1

    os.kill(beats[1].pid, signal.SIGSTOP)
    wait_for(lambda: psutil.Process(beats[1].pid).status() == psutil.STATUS_STOPPED)
    stopped = fetch(beats[1], timeout_s=0.5)
    assert stopped == Gap("flight recorder", f"process {beats[1].pid} is stopped, so it cannot answer", 1)
    os.kill(beats[1].pid, signal.SIGKILL)
    wait_for(lambda: not psutil.pid_exists(beats[1].pid), what="rank 1's end")
    assert fetch(beats[1]) == Gap("flight recorder", f"process {beats[1].pid} is gone", 1)


def test_rank_that_holds_its_gil(jobs: JobRunner, tmp_path: Path, run_dir: Path) -> None:
    """A rank stuck in native code with its interpreter held still tells where it is, without call sites."""
    beats = start(jobs, tmp_path, run_dir, "gil")
    (tmp_path / "hold").touch()
    wait_for((tmp_path / "held").exists, what="the interpreter to be held")
    record = fetch(beats[1], timeout_s=3.0)
    assert isinstance(record, FlightRecord)
    assert record.source == "json"
    assert [o.op for o in record.operations] == ["all_reduce", "broadcast"]


class _Socket:
    """A socket that answers as it is set."""

    def __init__(self, path: Path, answer: bytes | None) -> None:
        self.path, self.answer = path, answer

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))
        return str(self.path)

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readline()
            if self.answer is not None:
                writer.write(self.answer)
                await writer.drain()
            else:
                await reader.read()  # until the other side gives up
            writer.close()


@pytest.mark.parametrize(
    ("control", "server", "says"),
    [
        (b"", b"", "closed the connection without an answer"),
        (b"cposix\nsystem\n.", b"HTTP/1.1 404 Not Found\r\n\r\n", "posix.system"),
        (b"", b"HTTP/1.1 404 Not Found\r\n\r\n", "no flight recorder is available"),
        (None, None, "did not answer within 0.3 s"),
        (b"\x80\x02}q\x00.", b"HTTP/1.1 200 OK\r\n\r\n[", "not a flight-recorder dump"),
    ],
)
@pytest.mark.usefixtures("real")
def test_useless_answers_are_gaps(run_dir: Path, control: bytes | None, server: bytes | None, says: str) -> None:
    """Silence, refusals and hostile answers end in one Gap that says what happened."""

    async def ask() -> FlightRecord | Gap:
        async with _Socket(run_dir / "c", control) as first, _Socket(run_dir / "s", server) as second:
            ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
            beat = Beat(1, os.getpid(), ticks, 1, 1, rank=0, control=first, server=second)
            return await fetch_flight(beat, rank=0, timeout_s=0.3 if control is None else 30.0)

    found = asyncio.run(ask())
    assert isinstance(found, Gap)
    assert says in found.reason
    assert found.rank == 0


def test_rank_without_sockets_is_a_gap() -> None:
    """A probe that could open neither socket has said why."""
    beat = Beat(1, os.getpid(), 1, 1, 1, rank=3, problems=("no worker server: this torch has none",))
    assert fetch(beat) == Gap("flight recorder", "no worker server: this torch has none", 3)
