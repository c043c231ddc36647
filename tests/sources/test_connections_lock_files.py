"""Who has a lock file: real processes that have it, write beside it, or look at it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hangwatch.sources.connections.lock_files import find_lock_holder
from hangwatch.sources.stacks.samples import parse_paths

Hold = Callable[[str], int]


@pytest.fixture
def hold(real: None) -> Iterator[Hold]:
    """Start a process that opens something and waits, and return its pid."""
    del real
    started = []

    def begin(expression: str) -> int:
        program = f"import os, sys; held = {expression}; print('held', flush=True); sys.stdin.read()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-c", program], text=True, **pipes)  # type: ignore[call-overload]
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return int(process.pid)

    yield begin
    for process in started:
        process.communicate("")


def test_a_lock_is_that_of_the_process_that_has_it_open(hold: Hold, tmp_path: Path) -> None:
    """As ``FileBaton`` makes it; by its own path, and by that of its folder."""
    lock = tmp_path / "lock"
    pid = hold(f"os.open({str(lock)!r}, os.O_CREAT | os.O_EXCL)")
    assert find_lock_holder([str(lock)], ()) == (str(lock), pid)
    assert find_lock_holder([str(tmp_path)], ()) == (str(lock), pid)
    assert find_lock_holder([str(tmp_path)], (pid,)) is None


def test_a_compiler_writes_into_the_folder(hold: Hold, tmp_path: Path) -> None:
    """The process that had the lock may be gone; who reads there only is no such one."""
    (tmp_path / "lock").touch()
    (tmp_path / "main.cpp").touch()
    hold(f"open({str(tmp_path / 'main.cpp')!r})")
    assert find_lock_holder([str(tmp_path)], ()) is None
    pid = hold(f"open({str(tmp_path / '.ninja_log')!r}, 'a')")
    assert find_lock_holder([str(tmp_path)], ()) == (str(tmp_path / ".ninja_log"), pid)


def test_a_lock_that_nobody_has_has_no_holder(tmp_path: Path) -> None:
    """It was left behind; and where no path is known nothing is looked for."""
    (tmp_path / "lock").touch()
    assert find_lock_holder([str(tmp_path / "lock")], ()) is None
    assert find_lock_holder([], ()) is None
    assert find_lock_holder(["/"], ()) is None


def test_paths_are_those_of_the_deepest_calls() -> None:
    """Whole ones alone; of other threads, of other kinds of values and of what is no output of py-spy none."""

    def frame(**shown: str) -> dict[str, object]:
        named = [{"name": name, "repr": text} for name, text in shown.items()]
        return {"name": "f", "filename": "f.py", "line": 1, "locals": named}

    main = [
        frame(path='"/a/lock"', cut='"/a/b...', number="4"),
        frame(folder='"/a"'),
        frame(path='"/a/lock"'),
        frame(x='"/x"'),
    ]
    threads = [
        {"frames": [frame(other='"/other"')], "os_thread_id": 8, "thread_name": "side"},
        {"frames": main, "os_thread_id": 7, "thread_name": "MainThread"},
    ]
    assert parse_paths(json.dumps(threads).encode(), 7) == ("/a/lock", "/a")
    assert parse_paths(b"nothing", os.getpid()) == ()
    assert parse_paths(b"[]", 7) == ()
