"""What the kernel says of real processes: stopped, blocked, frozen, gone, replaced, with children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model.capture import RankIdentity
from hangwatch.sources.proc.blocking import find_blocked_on, read_sleep_left, read_syscall, read_wait_left
from hangwatch.sources.proc.files import parse_stat, parse_switches
from hangwatch.sources.proc.samples import is_frozen, parse_cgroups, parse_io, parse_wait_status, sample_process
from hangwatch.sources.proc.sockets import parse_tcp_table
from hangwatch.sources.proc.syscalls import SystemCall, parse_syscall
from support import JobRunner, find_free_port, wait_for


def identify(pid: int) -> RankIdentity:
    """The process as a rank."""
    return RankIdentity(rank=0, pid=pid, start_time=psutil.Process(pid).create_time())


def wait_for_sample(identity: RankIdentity, **wanted: str) -> None:
    """Wait until a deep sample has these values."""
    wait_for(
        lambda: all(getattr(sample_process(identity, deep=True), name) == value for name, value in wanted.items()),
        what=str(wanted),
    )


def test_working_process_uses_cpu_and_io(jobs: JobRunner) -> None:
    """A process that computes and writes shows it in its CPU time, its bytes and its state."""
    job = jobs.start([sys.executable, "-c", "while True: open('/dev/null', 'w').write('x' * 100)"])
    identity = identify(job.pid)
    first = wait_for(lambda: (s := sample_process(identity)).cpu_s > 0 and s, what="CPU time")
    later = wait_for(lambda: (s := sample_process(identity)).cpu_s > first.cpu_s and s, what="more CPU time")
    assert first.io_bytes is not None
    assert later.io_bytes is not None
    assert later.io_bytes > first.io_bytes
    assert later.at_ns > first.at_ns
    assert later.switches is not None
    assert not later.frozen
    assert later.exit is None


def test_stopped_process(jobs: JobRunner) -> None:
    """A process stopped by a signal has state T."""
    job = jobs.start([sys.executable, "-c", "import time; time.sleep(600)"])
    identity = identify(job.pid)
    job.send(signal.SIGSTOP)
    wait_for_sample(identity, state="T")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="time.sleep names no time to wake up at before Python 3.11")
def test_a_sleep_is_known_by_its_end(jobs: JobRunner) -> None:
    """Of time.sleep; the C library's sleep names how long it is in all, and not until when."""
    job = jobs.start([sys.executable, "-c", "import time; time.sleep(600)"])
    left = wait_for(lambda: read_sleep_left(job.pid, read_syscall(job.pid)))
    assert 0 < left <= 600
    other = jobs.start([sys.executable, "-c", "import ctypes; ctypes.CDLL(None).sleep(600)"])
    wait_for(lambda: (call := read_syscall(other.pid)) is not None and call.name == "clock_nanosleep")
    assert read_sleep_left(other.pid, read_syscall(other.pid)) == 600
    assert read_sleep_left(other.pid, None) is None


@pytest.mark.parametrize(
    ("waits", "in_all"),
    [
        ("import threading; threading.Event().wait({})", 600),
        ("import select; select.poll().poll({} and {} * 1000)", 600),
        ("import select; select.epoll().poll({})", 600),
    ],
    ids=["event", "poll", "epoll"],
)
def test_a_wait_with_a_time_out_is_known_by_its_end(jobs: JobRunner, waits: str, in_all: int) -> None:
    """Or by how long it is in all; one that waits for ever names none."""
    job = jobs.start([sys.executable, "-c", waits.replace("{}", str(in_all))])
    left = wait_for(lambda: read_wait_left(job.pid, read_syscall(job.pid)))
    assert 0 < left <= in_all
    other = jobs.start([sys.executable, "-c", waits.replace("{}", "None")])
    wait_for(lambda: (call := read_syscall(other.pid)) is not None and call.name in {"futex", "poll", "epoll_wait"})
    assert read_wait_left(other.pid, read_syscall(other.pid)) is None


def test_fifo_read_names_its_path(jobs: JobRunner, tmp_path: Path) -> None:
    """A read from a FIFO that delivers nothing is shown with the FIFO's path."""
    fifo = tmp_path / "shard"
    os.mkfifo(fifo)
    job = jobs.start([sys.executable, "-c", "import os, sys; os.read(os.open(sys.argv[1], os.O_RDWR), 1)", fifo])
    wait_for_sample(identify(job.pid), syscall="read", blocked_on=str(fifo), state="S")


@pytest.mark.parametrize("relative", [False, True])
def test_fifo_open_names_its_path(jobs: JobRunner, tmp_path: Path, relative: bool) -> None:
    """Opening a FIFO nobody writes to blocks in the open itself: the path is read from the call's argument."""
    os.mkfifo(tmp_path / "shard")
    path = "shard" if relative else str(tmp_path / "shard")
    job = jobs.start([sys.executable, "-c", "import sys; open(sys.argv[1])", path], cwd=tmp_path)
    wait_for_sample(identify(job.pid), blocked_on=str(tmp_path / "shard"))


def test_pipe_read_names_who_holds_the_other_end(jobs: JobRunner) -> None:
    """A process that reads from its child's pipe shows the child."""
    code = "import subprocess as s; p = s.Popen(['sleep', '600'], stdout=s.PIPE); p.stdout.read()"
    job = jobs.start([sys.executable, "-c", code])
    identity = identify(job.pid)
    wait_for(lambda: sample_process(identity, deep=True).blocked_on)
    child = wait_for(lambda: [c for c in sample_process(identity, deep=True).children if c.name == "sleep"])[0]
    sample = sample_process(identity, deep=True)
    assert sample.blocked_on is not None
    assert sample.blocked_on.startswith("pipe:[")
    assert sample.blocked_on.endswith(f"] from {child.pid} sleep")
    assert child.cpu_s >= 0


def test_socket_read_names_the_peer(jobs: JobRunner) -> None:
    """A receive from a silent peer is shown with its address."""
    port = find_free_port()
    code = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1])));"
        "c = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); c.recv(1)"
    )
    job = jobs.start([sys.executable, "-c", code, str(port)])
    identity = identify(job.pid)
    wait_for(lambda: (sample_process(identity, deep=True).blocked_on or "").endswith(f" to 127.0.0.1:{port}"))


def test_poll_names_what_is_polled(jobs: JobRunner, tmp_path: Path) -> None:
    """A poll is shown with the descriptors it is on."""
    os.mkfifo(tmp_path / "queue")
    code = "import os, select, sys; p = select.poll(); p.register(os.open(sys.argv[1], os.O_RDWR), 1); p.poll()"
    job = jobs.start([sys.executable, "-c", code, tmp_path / "queue"])
    wait_for_sample(identify(job.pid), blocked_on=str(tmp_path / "queue"))


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_lock_of_a_file_names_who_has_it(jobs: JobRunner, tmp_path: Path, call: str) -> None:
    """Whoever waits for a lock on a file is shown with the file, and the process that has it."""
    lock = tmp_path / "cache.lock"
    code = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'a');"
        f"fcntl.{call}(f, fcntl.LOCK_EX); print('locked', flush=True); time.sleep(600)"
    )
    owner = jobs.start([sys.executable, "-c", code, lock])
    wait_for(lambda: "locked" in owner.stdout())
    waiting = jobs.start([sys.executable, "-c", code, lock])
    reported = wait_for(lambda: sample_process(identify(waiting.pid), deep=True).blocked_on)
    assert reported.startswith(f"{lock} held by {owner.pid} ")


def test_who_polls_for_a_lock_is_shown_whose_it_is(jobs: JobRunner, tmp_path: Path) -> None:
    """SQLite sleeps in between: the file it has open, and the process that has locked that, are shown all the same."""
    take = (
        "import sqlite3, sys, time; db = sqlite3.connect(sys.argv[1], timeout=600.0, isolation_level=None);"
        "db.execute('BEGIN EXCLUSIVE'); print('locked', flush=True); time.sleep(600)"
    )
    file = tmp_path / "runs.db"
    owner = jobs.start([sys.executable, "-c", take, file])
    wait_for(lambda: "locked" in owner.stdout())
    waiting = jobs.start([sys.executable, "-c", take, file])
    reported = wait_for(lambda: sample_process(identify(waiting.pid), deep=True).blocked_on)
    assert reported.startswith(f"{file} held by {owner.pid} ")
    wait_for_sample(identify(owner.pid), state="S")
    assert sample_process(identify(owner.pid), deep=True).blocked_on is None, "it sleeps, and has the lock itself"


def test_event_loop_names_the_connections_it_watches(jobs: JobRunner) -> None:
    """What asyncio waits for is reported, and not the socket by which it is woken."""
    port = find_free_port()
    code = """
import asyncio, sys
async def main():
    kept = []  # streams that nobody refers to are closed, from Python 3.13 on
    kept.append(await asyncio.start_server(lambda *streams: kept.append(streams), "127.0.0.1", int(sys.argv[1])))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]))
    await reader.read()
asyncio.run(main())
"""
    job = jobs.start([sys.executable, "-c", code, str(port)])
    identity = identify(job.pid)
    reported = wait_for(lambda: (b := sample_process(identity, deep=True).blocked_on or "") and f":{port}" in b and b)
    parts = reported.split(", ")
    assert all(part.startswith("socket:[") and (" to " in part or " listening " in part) for part in parts)


def test_event_loop_that_only_sleeps_is_on_no_connection(jobs: JobRunner) -> None:
    """Nothing but itself is reported of it."""
    job = jobs.start([sys.executable, "-c", "import asyncio; asyncio.run(asyncio.sleep(600))"])
    wait_for_sample(identify(job.pid), blocked_on="anon_inode:[eventpoll]")


def test_descendants_are_children(jobs: JobRunner) -> None:
    """Children and their children are listed, with their state."""
    job = jobs.start(["sh", "-c", "sh -c 'sleep 601; true' & sleep 602; true"])
    identity = identify(job.pid)

    def names() -> list[str]:
        return sorted(child.name for child in sample_process(identity, deep=True).children)

    # A shell that has forked is a shell still, until it becomes the other program.
    wait_for(lambda: names() == ["sh", "sleep", "sleep"], what="a shell and two that sleep")
    assert sample_process(identity).children == ()


@pytest.mark.usefixtures("real")
def test_gone_and_reused_pid() -> None:
    """A process that ended is gone, and so is one whose pid belongs to another process by now."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    identity = identify(process.pid)
    process.wait()
    assert sample_process(identity, deep=True).state == "gone"
    own = identify(os.getpid())
    assert sample_process(own).state != "gone"
    # An agent may have read another second as that of the boot, but nothing between.
    for apart_s, state in (
        (-5.0, "gone"),
        (0.7, "gone"),
        (-0.04, "gone"),
        (1.04, "gone"),
        (1.0, "there"),
        (-1.0, "there"),
    ):
        other = RankIdentity(rank=0, pid=own.pid, start_time=own.start_time + apart_s)
        assert (sample_process(other).state == "gone") == (state == "gone"), apart_s


def test_ended_rank_is_supervised_while_who_started_it_lives(jobs: JobRunner) -> None:
    """Not by a process that began after it and has the pid now, nor by one that has ended, be it buried or not."""
    launcher = jobs.start([sys.executable, "-c", "import time; time.sleep(600)"])
    began = psutil.Process(launcher.pid).create_time()
    ended = RankIdentity(rank=0, pid=2**22 + 7, start_time=began + 1.0, supervisor=launcher.pid)
    assert sample_process(ended).supervised
    assert not sample_process(msgspec.structs.replace(ended, supervisor=None)).supervised
    assert not sample_process(msgspec.structs.replace(ended, start_time=began - 60.0)).supervised
    os.kill(launcher.pid, signal.SIGKILL)
    wait_for(lambda: not sample_process(ended).supervised, what="its end")
    launcher.wait()
    assert not sample_process(ended).supervised


@pytest.mark.parametrize(("code", "status", "signalled"), [("exit(7)", 7, None), ("kill", None, signal.SIGKILL)])
@pytest.mark.usefixtures("real")
def test_zombie_tells_how_it_ended(code: str, status: int | None, signalled: int | None) -> None:
    """A process that ended and was not reaped yet tells its exit status or signal."""
    body = "import os; os.kill(os.getpid(), 9)" if code == "kill" else code
    process = subprocess.Popen([sys.executable, "-c", body])
    try:
        identity = identify(process.pid)
        sample = wait_for(lambda: (s := sample_process(identity, deep=True)).state == "Z" and s)
        assert sample.exit is not None
        assert (sample.exit.code, sample.exit.signal) == (status, signalled)
        assert sample.exit.seen_at_ns == sample.at_ns
    finally:
        process.wait()


def test_process_outlives_its_main_thread(jobs: JobRunner) -> None:
    """Where only the main thread has ended, the process is not called dead."""
    code = (
        "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(600,)).start();"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    job = jobs.start([sys.executable, "-c", code])
    try:
        identity = identify(job.pid)
        wait_for(lambda: psutil.Process(job.pid).status() == psutil.STATUS_ZOMBIE, what="the main thread's end")
        wait_for(lambda: sample_process(identity, deep=True).state == "S", what="the thread that is left to sleep")
    finally:
        job.send(signal.SIGKILL)  # it looks dead, so the job's own cleaning would pass it over


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A cgroup (v1 freezer) of our own."""
    group = Path(f"/sys/fs/cgroup/freezer/test-{os.getpid()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    yield group
    (group / "freezer.state").write_text("THAWED")
    for pid in (group / "cgroup.procs").read_text().split():
        (group.parent / "cgroup.procs").write_text(pid)
    wait_for(lambda: not (group / "cgroup.procs").read_text(), what="the cgroup to be empty")
    group.rmdir()


def test_frozen_cgroup(jobs: JobRunner, freezer: Path) -> None:
    """A process in a frozen cgroup is frozen, deep or not."""
    job = jobs.start(["sleep", "600"])
    (freezer / "cgroup.procs").write_text(str(job.pid))
    assert not sample_process(identify(job.pid), deep=True).frozen
    (freezer / "freezer.state").write_text("FROZEN")
    wait_for(lambda: (freezer / "freezer.state").read_text().strip() == "FROZEN")
    assert sample_process(identify(job.pid)).frozen
    assert sample_process(identify(job.pid), deep=True).frozen


@pytest.mark.usefixtures("real")
def test_another_users_process_gives_what_may_be_seen() -> None:
    """What may not be read is None, and nothing is raised."""
    parent, child = os.pipe()
    pid = os.fork()
    if pid == 0:  # a child that gives its rights away looks at its parent
        with contextlib.suppress(BaseException):
            os.setgid(65534)
            os.setuid(65534)
            sample = sample_process(identify(os.getppid()), deep=True)
            os.write(child, repr((sample.state, sample.io_bytes, sample.syscall, sample.blocked_on)).encode())
        os._exit(0)
    os.close(child)
    with os.fdopen(parent) as answer:
        seen = answer.read()
    os.waitpid(pid, 0)
    if not seen:
        pytest.skip("needs root: another user cannot be taken on here")
    assert seen.endswith("None, None, None)")


def test_pure_parsers_read_real_text() -> None:
    """Names with parentheses, missing counters, another machine's system calls, cgroups of both versions."""
    fields = "S 1 1 1 0 -1 4194560 1 2 3 4 150 50 6 7 20 0 13 0 24000 9 9 9" + " 0" * 28
    stat = parse_stat(f"42 (a (b) c) {fields}".encode())
    assert stat is not None
    assert (stat.pid, stat.name, stat.state, stat.parent, stat.threads, stat.start_ticks) == (
        42,
        "a (b) c",
        "S",
        1,
        13,
        24000,
    )
    assert stat.cpu_s == pytest.approx(200 / os.sysconf("SC_CLK_TCK"))
    assert parse_io(b"rchar: 5\nwchar: 6\nsyscr: 1\nread_bytes: 4\nwrite_bytes: 8\n") == 23
    assert parse_io(b"rchar: 5\n") is None
    assert parse_switches(b"voluntary_ctxt_switches:\t2\nnonvoluntary_ctxt_switches:\t3\n") == 2
    assert parse_wait_status(256).code == 1
    assert parse_wait_status(9 | 0x80).signal == 9
    assert parse_syscall(b"63 0x5 0x0 0x0 0x0 0x0 0x0 0x1 0x2\n", "aarch64") == SystemCall("read", (5, 0, 0, 0, 0, 0))
    assert parse_syscall(b"63 0x5\n", "riscv64") == SystemCall("#63", (5,))
    # As time.sleep is: from Python 3.11 on, and before.
    reported = {
        line: parse_syscall(line, "x86_64") for line in (b"230 0x1 0x1", b"23 0x0 0x0", b"23 0x4 0x0", b"0 0x0")
    }
    assert [call is not None and call.asleep for call in reported.values()] == [True, True, False, False]
    assert parse_syscall(b"running\n") is None
    assert parse_syscall(b"-1 0x7ff 0x7f\n") is None
    assert parse_cgroups(b"6:freezer:/job\n4:cpu,cpuacct:/x\n0::/y\n") == {
        "freezer": "/job",
        "cpu": "/x",
        "cpuacct": "/x",
        "": "/y",
    }
    table = b"sl local_address\n 0: 0100007F:73A5 0200000A:1F90 01 0:0 0:0 0 0 0 77 1 0\n"
    assert parse_tcp_table(table)[0][:5] == (77, "127.0.0.1", 0x73A5, "10.0.0.2", 0x1F90)


@given(st.binary(max_size=200))
def test_pure_parsers_survive_anything(data: bytes) -> None:
    """Text that is something else is no answer, and no error."""
    parse_stat(data)
    parse_syscall(data)
    parse_cgroups(data)
    parse_tcp_table(b"head\n" + data)


def test_unknown_processes_block_on_nothing() -> None:
    """A process that is gone gives no answer to anything."""
    assert find_blocked_on(2**22 + 1, SystemCall("read", (0,))) is None
    assert find_blocked_on(2**22 + 1, SystemCall("openat", (0, 1, 2))) is None
    assert find_blocked_on(2**22 + 1, SystemCall("poll", (0, 1))) is None
    assert not is_frozen(2**22 + 1)
