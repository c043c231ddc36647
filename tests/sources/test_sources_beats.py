"""Beats of living processes are read; stale, broken and newer ones are not taken for good."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import psutil
import pytest

from hangwatch.model.beats import BEAT_VERSION, Beat
from hangwatch.model.capture import RankIdentity
from hangwatch.sources.beats.files import BeatReader, remove_leftovers
from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.proc.files import read_stat, start_time_s
from support import wait_for


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory."""
    (tmp_path / "ranks").mkdir()
    return tmp_path


def make_beat(counter: int = 1, version: int = BEAT_VERSION, start_ticks: int | None = None) -> Beat:
    """A beat of this very process."""
    stat = read_stat(os.getpid())
    assert stat is not None
    ticks = stat.start_ticks if start_ticks is None else start_ticks
    return Beat(version, os.getpid(), ticks, counter, at_ns=5, rank=3)


def started(start_ticks: int) -> float:
    """When a process started, seconds since the epoch."""
    stat = read_stat(os.getpid())
    assert stat is not None
    return start_time_s(stat._replace(start_ticks=start_ticks))


def write(run_dir: Path, beat: Beat, pid: int | None = None) -> None:
    """As the probe writes: whole."""
    path = run_dir / "ranks" / f"{pid or beat.pid}.beat"
    path.with_suffix(".new").write_bytes(msgspec.json.encode(beat))
    path.with_suffix(".new").rename(path)


def test_living_process(run_dir: Path) -> None:
    """The beat of a living process is there, and the next one replaces it."""
    reader = BeatReader(run_dir)
    write(run_dir, make_beat(1))
    first, gaps = reader.read()
    assert first == {os.getpid(): make_beat(1)}
    assert gaps == ()
    again, _ = reader.read()
    assert again[os.getpid()] is first[os.getpid()]  # not decoded again
    write(run_dir, make_beat(2))
    assert reader.read()[0][os.getpid()].counter == 2


def test_stale_files_are_ignored(run_dir: Path) -> None:
    """Files of a pid that is gone, or that belongs to another process by now, are nobody's beat."""
    write(run_dir, make_beat(), pid=2**22 + 1)
    write(run_dir, make_beat(start_ticks=1))
    (run_dir / "ranks" / "notes.txt").write_text("x")
    (run_dir / "ranks" / "x.beat").write_text("x")
    assert BeatReader(run_dir).read() == ({}, ())


def test_last_beats_are_those_of_the_very_process(run_dir: Path) -> None:
    """What a process that is gone wrote last is given for its pid and its start; nothing for one that lives."""
    gone = 2**22 + 1
    before = msgspec.structs.replace(make_beat(), pid=gone, start_ticks=500, ended=True)
    write(run_dir, before)
    write(run_dir, make_beat())
    reader = NodeBeats(run_dir)
    assert reader.last_of([RankIdentity(3, gone, started(500))]) == {}  # nothing was read yet
    reader.read()
    assert reader.last_of([RankIdentity(3, gone, started(500))]) == {gone: before}
    assert reader.last_of([RankIdentity(3, gone, started(500) + 60)]) == {}
    assert reader.last_of([RankIdentity(3, os.getpid(), started(make_beat().start_ticks))]) == {}


def test_last_beat_of_a_pid_that_was_given_away_again(run_dir: Path) -> None:
    """The process of now has our pid; the one before it is known by its start."""
    before = make_beat(start_ticks=1)
    write(run_dir, before)
    reader = NodeBeats(run_dir)
    assert reader.read() == ({}, ())
    assert reader.last_of([RankIdentity(3, os.getpid(), started(1))]) == {os.getpid(): before}


def test_newer_and_broken_beats_are_gaps(run_dir: Path) -> None:
    """What cannot be read is said, by the file's name."""
    reader = BeatReader(run_dir)
    write(run_dir, make_beat(version=BEAT_VERSION + 1))
    beats, gaps = reader.read()
    assert beats == {}
    assert f"{os.getpid()}.beat is in format {BEAT_VERSION + 1}" in gaps[0].reason
    (run_dir / "ranks" / f"{os.getpid()}.beat").write_text("{")
    beats, gaps = reader.read()
    assert beats == {}
    assert "is broken" in gaps[0].reason
    assert gaps[0].hint


def test_a_beat_has_a_size(run_dir: Path) -> None:
    """More than 4 MiB is not read: a file may be as large as its writer likes."""
    path = run_dir / "ranks" / f"{os.getpid()}.beat"
    path.write_bytes(b" " * (4 << 20) + msgspec.json.encode(make_beat()))
    beats, gaps = BeatReader(run_dir).read()
    assert beats == {}
    assert "is broken" in gaps[0].reason


def test_problem_of_a_living_process_is_a_gap(run_dir: Path) -> None:
    """What a probe could not do is reported while its process lives."""
    (run_dir / "ranks" / f"{os.getpid()}.problem").write_text("no torch here\n")
    (run_dir / "ranks" / f"{2**22 + 1}.problem").write_text("long gone")
    beats, gaps = BeatReader(run_dir).read()
    assert beats == {}
    assert [gap.reason for gap in gaps] == [f"in process {os.getpid()}: no torch here"]


def test_no_run_directory_is_no_beats(tmp_path: Path) -> None:
    """Before any probe has run there is nothing, and that is no failure."""
    assert BeatReader(tmp_path / "absent").read() == ({}, ())


@pytest.mark.usefixtures("real")
def test_what_the_dead_have_left_is_removed(run_dir: Path) -> None:
    """All files of a pid that is gone or a zombie, once none of them is fresh; those of the living and of strangers stay."""
    folder = run_dir / "ranks"
    dead, fresh, alive, zombie = 2**22 + 1, 2**22 + 2, os.getpid(), subprocess.Popen(["true"])
    wait_for(lambda: psutil.Process(zombie.pid).status() == psutil.STATUS_ZOMBIE, what="a zombie")
    for pid in (dead, fresh, alive, zombie.pid):
        for ending in ("beat", "control", "server"):
            file = folder / f"{pid}.{ending}"
            file.write_text("x")
            os.utime(file, (1000.0, 1000.0))
    os.utime(folder / f"{fresh}.beat")
    (folder / "notes.txt").write_text("x")
    assert remove_leftovers(run_dir) == 6
    zombie.wait()
    left = {path.name for path in folder.iterdir()}
    assert left == {"notes.txt"} | {
        f"{pid}.{ending}" for pid in (fresh, alive) for ending in ("beat", "control", "server")
    }
    assert remove_leftovers(run_dir / "missing") == 0
