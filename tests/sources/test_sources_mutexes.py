"""Which thread has the mutex of the C library that another one waits for, read from real processes."""

from __future__ import annotations

import sys

import pytest

from hangwatch.model.processes import GIL, MutexWait
from hangwatch.sources.proc import mutexes
from hangwatch.sources.proc.maps import parse_maps
from hangwatch.sources.proc.mutexes import find_mutex_waits, parse_owner
from hangwatch.sources.proc.syscalls import SystemCall
from support import JobRunner, wait_for

MAPS = b"""\
7f0000000000-7f0000001000 rw-p 00000000 fe:00 1 /usr/lib/libpython3.11.so.1.0
7f0000001000-7f0000002000 rw-p 00000000 00:00 0
7f0000002000-7f0000003000 ---p 00000000 00:00 0
7f0000004000-7f0000005000 rw-p 00000000 00:00 0
"""

#: Prints the process that waits, then the number of its main thread's owner as it knows it.
PROGRAM = """
import ctypes, mmap, os, sys, threading, time
free, held = ctypes.CDLL(None), ctypes.PyDLL(None)
pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
first = (ctypes.c_char * 40).from_buffer(pages, mmap.PAGESIZE - 8)  # a mutex across two pages
second = ctypes.create_string_buffer(40)
begun, go = threading.Event(), threading.Event()
def crossed():
    free.pthread_mutex_lock(first); begun.set(); free.pthread_mutex_lock(second)
def with_the_interpreter():
    free.pthread_mutex_lock(first); begun.set()
    while True:
        time.sleep(0.01)
def ended():
    free.pthread_mutex_lock(first); begun.set()
how = sys.argv[1]
if how == "crossed":
    free.pthread_mutex_lock(second)
thread = threading.Thread(target=ended if how in ("ended", "forked") else locals()[how], daemon=True)
thread.start()
begun.wait()
if how in ("ended", "forked"):
    thread.join()
if how == "forked" and os.fork():
    os.wait()
print(os.getpid(), thread.native_id, flush=True)
(held if how == "with_the_interpreter" else free).pthread_mutex_lock(first)
"""


@pytest.mark.parametrize(
    ("how", "there", "owner_in"),
    [("crossed", True, "futex"), ("with_the_interpreter", True, GIL), ("ended", False, ""), ("forked", False, "")],
)
def test_the_owner_of_a_mutex_is_known(jobs: JobRunner, how: str, there: bool, owner_in: str) -> None:
    """And what it is in; or that the process has no such thread."""
    job = jobs.start([sys.executable, "-c", PROGRAM, how])
    pid, owner = map(int, job.wait_for_output("\n").split())

    def of_main() -> MutexWait | None:
        return next((wait for wait in find_mutex_waits(pid) if wait.thread == pid and wait.owner_in == owner_in), None)

    wait = wait_for(of_main)
    assert (wait.owner, bool(wait.owner_name), bool(wait.name)) == (owner, there, True)
    if how == "crossed":
        both = {(pid, owner), (owner, pid)}

        def crossed() -> bool:
            assert job.process.poll() is None, f"ended with {job.process.returncode}"
            return {(w.thread, w.owner) for w in find_mutex_waits(pid)} == both

        wait_for(crossed, 5.0)


def test_a_process_without_such_waits_has_none(jobs: JobRunner) -> None:
    """Sleep, a lock of Python's and a condition's wait are none; nor has a process any that is gone."""
    waits = "import threading, time\nlock = threading.Lock(); lock.acquire()\n"
    waits += "threading.Thread(target=lock.acquire, daemon=True).start()\nprint('here', flush=True)\ntime.sleep(600)"
    job = jobs.start([sys.executable, "-c", waits])
    job.wait_for_output("here")
    assert find_mutex_waits(job.pid) == ()
    assert find_mutex_waits(1 << 22) == ()


@pytest.mark.parametrize(
    ("words", "owner"),
    [
        ((2, 0, 77, 1, 0), 77),
        ((2, 1, 77, 1, 1), 77),  # recursive
        ((1, 0, 77, 1, 0), None),  # nobody waits
        ((2, 0, 0, 0, 0), None),  # an arena of malloc: a word, and what else it has
        ((2, 0, 77, 1, 16), None),  # robust: its word holds the owner, and is never 2
        ((2, 0), None),
    ],
)
def test_only_what_is_a_mutex_has_an_owner(words: tuple[int, ...], owner: int | None) -> None:
    """Other locks of the C library wait in the same way."""
    assert parse_owner(b"".join(word.to_bytes(4, sys.byteorder, signed=True) for word in words)) == owner


@pytest.mark.parametrize(
    ("address", "of_the_interpreter"),
    [(0x7F0000000010, True), (0x7F0000001010, True), (0x7F0000002010, True), (0x7F0000004010, False)],
    ids=["in the library", "right behind it", "behind that", "past a gap"],
)
def test_a_lock_behind_the_variables_of_the_interpreter_is_its_own(
    address: int, of_the_interpreter: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables without a first value are in memory of no file, which may be mapped in several pieces."""
    monkeypatch.setattr(mutexes, "read_maps", lambda _pid: parse_maps(MAPS))
    assert mutexes._awaits_interpreter(1, SystemCall("futex", (address, 128))) is of_the_interpreter
