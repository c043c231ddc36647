"""What the kernel says of a rank's process, read from ``/proc`` without touching the process.

May import hangwatch.model and the standard library. The shallow sample is four small reads (about 0.1 ms), taken of
every rank every second. The deep one also walks the descendants and finds what the process is blocked on.

Torch's watchdogs of NCCL ask the device for its progress ten times a second. There is one thread for each process
group, known by its name (``pt_nccl_watchdg``; ``ncclCommWatchdog`` and ``Watchdog::run`` in ``ProcessGroupNCCL.cpp``,
torch 2.4 to 2.13). Reading them takes about 10 us per thread of the process. Formats of frozen cgroups: cgroups(7) v1
``freezer.state``; v2 ``cgroup.events`` (Documentation/admin-guide/cgroup-v2.rst, Linux 5.2 on).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from hangwatch.model.capture import RankIdentity
from hangwatch.model.processes import ChildProcess, ExitStatus, ProcessSample, WatchdogSample
from hangwatch.sources.proc.blocking import find_blocked_on, read_sleep_left, read_syscall, read_wait_left
from hangwatch.sources.proc.files import (
    START_TIME_TOLERANCE_S,
    Stat,
    inner_thread,
    is_same_start,
    is_zombie,
    list_folder,
    parse_stat,
    parse_switches,
    read_small,
    read_stat,
    start_time_s,
)
from hangwatch.sources.proc.mutexes import find_mutex_waits

_NAME = "pt_nccl_watchdg"
#: A process with more threads is not searched.
_MOST_THREADS = 1024
#: States of a waiting thread, even if it waits only for its next check. A runnable thread without a core does not wait.
_ASLEEP = frozenset("SD")


def find_watchdogs(pid: int) -> tuple[WatchdogSample, ...]:
    """Return the watchdog threads that are asleep now; none if the process has too many threads to search."""
    threads = [int(name) for name in list_folder(f"/proc/{pid}/task")]
    found = (_read(pid, thread) for thread in threads) if len(threads) <= _MOST_THREADS else ()
    return tuple(one for one in found if one is not None)


def _read(pid: int, thread: int) -> WatchdogSample | None:
    folder = f"/proc/{pid}/task/{thread}"
    stat = parse_stat(read_small(f"{folder}/stat", 2048) or b"")
    if stat is None or stat.name != _NAME or stat.state not in _ASLEEP:
        return None
    switches = parse_switches(read_small(f"{folder}/status", 8192) or b"")
    return WatchdogSample(inner_thread(pid, thread), switches) if switches is not None else None


_V1_ROOTS = ("/sys/fs/cgroup/freezer",)
_V2_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


def parse_cgroups(data: bytes) -> dict[str, str]:
    """Parse ``/proc/PID/cgroup``: return the path by controller; v2's is under the empty name."""
    paths: dict[str, str] = {}
    for line in data.decode(errors="replace").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            paths.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return paths


def read_cgroup(pid: int, *files: tuple[str, tuple[str, ...], str]) -> Iterator[bytes]:
    """Yield the content of files of a process's cgroups, each given by controller, roots and name.

    Files that are not visible (another cgroup namespace) are left out.
    """
    paths = parse_cgroups(read_small(f"/proc/{pid}/cgroup") or b"")
    for controller, roots, name in files:
        path = paths.get(controller)
        for root in roots if path is not None and "/.." not in path else ():
            data = read_small(f"{root}{path}/{name}", 4096)
            if data is not None:
                yield data


def is_frozen(pid: int) -> bool:
    """True if the process is in a frozen cgroup; False also if that is not visible."""
    states = read_cgroup(pid, ("freezer", _V1_ROOTS, "freezer.state"), ("", _V2_ROOTS, "cgroup.events"))
    return any(mark in data for data in states for mark in (b"FROZEN", b"FREEZING", b"frozen 1"))


GONE = "gone"
_CHILDREN_LIMIT = 512
#: What a driver starts with a cluster of its own: programs, scripts and titles (Ray 2.60: ``RAY_PROCESSES`` in
#: ``ray/autoscaler/_private/constants.py``).
_RAY_SERVICES = (
    b"/gcs_server", b"/raylet", b"/ray/autoscaler/_private/monitor.py", b"/ray/_private/log_monitor.py",
    b"/ray/dashboard/dashboard.py", b"ray::DashboardAgent", b"ray::RuntimeEnvAgent",
)  # fmt: skip


def sample_process(identity: RankIdentity, *, deep: bool = False) -> ProcessSample:
    """Return one process as it is now.

    Unreadable values are None; the state is ``gone`` if the process has ended, or if its pid is another's by now.
    ``deep`` adds the descendants, the system call and what it is blocked on (takes milliseconds, so not every
    second).
    """
    pid, at_ns = identity.pid, time.time_ns()
    stat = read_stat(pid)
    if stat is None or not is_same_start(stat, identity.start_time):
        return ProcessSample(at_ns=at_ns, pid=pid, state=GONE, supervised=is_supervised(identity))
    state = _living_state(stat)
    if state in {"Z", "X"}:
        return ProcessSample(
            at_ns=at_ns,
            pid=pid,
            state="Z",
            cpu_s=stat.cpu_s,
            exit=parse_wait_status(stat.wait_status, at_ns),
            supervised=is_supervised(identity),
        )
    wait_channel = read_wait_channel(pid)
    children = tuple(_sample_children(pid)) if deep else ()
    call = read_syscall(pid) if deep else None
    # A process frozen by cgroup v1 shows D and the channel it was frozen in, one frozen by v2 its own channel.
    may_be_frozen = deep or state in {"D", "T"} or "freez" in (wait_channel or "") or "refrig" in (wait_channel or "")
    return ProcessSample(
        at_ns=at_ns,
        pid=pid,
        state=state,
        cpu_s=stat.cpu_s,
        io_bytes=parse_io(read_small(f"/proc/{pid}/io", 1024) or b""),
        switches=parse_switches(read_small(f"/proc/{pid}/status", 8192) or b""),
        wait_channel=wait_channel,
        syscall=call.name if call else None,
        blocked_on=find_blocked_on(pid, call, (stat.parent, *(child.pid for child in children))) if deep else None,
        frozen=may_be_frozen and is_frozen(pid),
        children=children,
        mutexes=find_mutex_waits(pid) if deep else (),
        watchdogs=find_watchdogs(pid) if deep else (),
        sleep_left_s=read_wait_left(pid, call),
    )


def find_living(ranks: Sequence[RankIdentity]) -> list[RankIdentity]:
    """Return the ranks whose processes still exist."""
    stats = ((one, read_stat(one.pid)) for one in ranks)
    return [
        one for one, stat in stats if stat is not None and not is_zombie(stat) and is_same_start(stat, one.start_time)
    ]


def is_supervised(identity: RankIdentity) -> bool:
    """True if the torchrun agent that started this rank lives.

    A process with its pid that began after the rank is another one.
    """
    stat = read_stat(identity.supervisor) if identity.supervisor is not None else None
    if stat is None or is_zombie(stat):
        return False
    return start_time_s(stat) <= identity.start_time + START_TIME_TOLERANCE_S


def parse_wait_status(status: int, at_ns: int | None = None) -> ExitStatus:
    """Return how a process ended, from a wait status as in wait(2) and field 52 of ``/proc/PID/stat``."""
    signal = status & 0x7F
    if signal:
        return ExitStatus(signal=signal, seen_at_ns=at_ns)
    return ExitStatus(code=(status >> 8) & 0xFF, seen_at_ns=at_ns)


def parse_io(data: bytes) -> int | None:
    """Return the bytes moved, from ``/proc/PID/io``: through calls (``rchar``, ``wchar``) and to storage; None if incomplete.

    A call counts only when it returns, and one write of a whole checkpoint returns after minutes; meanwhile the bytes
    of storage (``read_bytes``, ``write_bytes``) show that it moves.
    """
    fields = dict(line.split(b":", 1) for line in data.splitlines() if b":" in line)
    try:
        return sum(int(fields[name]) for name in (b"rchar", b"wchar", b"read_bytes", b"write_bytes"))
    except (KeyError, ValueError):
        return None


def read_wait_channel(pid: int, thread: int | None = None) -> str | None:
    """Return the kernel function a thread (default: the main one) waits in; None if it runs or the kernel does not tell."""
    channel = read_small(f"/proc/{pid}/task/{pid if thread is None else thread}/wchan", 256) or b""
    text = channel.decode(errors="replace").strip()
    return None if text in {"", "0"} else text


def find_descendants(pid: int) -> tuple[int, ...]:
    """Return the descendants of a process, parents first (needs CONFIG_PROC_CHILDREN, as all distributions have)."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < _CHILDREN_LIMIT:
        for child in _children_of(waiting.pop(0)):
            found.append(child)
            waiting.append(child)
    return tuple(found[:_CHILDREN_LIMIT])


def find_workers(pid: int, most: int) -> tuple[int, ...]:
    """Return the oldest processes that a Python program has started with ``multiprocessing``: forks of it, or spawned."""
    command = read_small(f"/proc/{pid}/cmdline")
    commands = ((child, read_small(f"/proc/{child}/cmdline") or b"") for child in find_descendants(pid))
    return tuple(child for child, own in commands if own == command or b"multiprocessing.spawn" in own)[:most]


def _living_state(stat: Stat) -> str:
    """Return the state of the main thread; if that alone has ended, of the next thread."""
    if stat.state == "Z" and stat.threads > 1:
        for thread in list_folder(f"/proc/{stat.pid}/task"):
            other = read_small(f"/proc/{stat.pid}/task/{thread}/stat", 2048)
            letter = (other or b"").rpartition(b")")[2].split()[:1]
            if letter and letter[0] not in {b"Z", b"X"}:
                return letter[0].decode()
    return stat.state


def _sample_children(pid: int) -> Iterator[ChildProcess]:
    """Yield samples of all descendants but Ray's own services, which are at something whatever the program does.

    A child with its parent's command line was forked: another program would have its own.
    """
    commands = {pid: read_small(f"/proc/{pid}/cmdline")}
    for child in find_descendants(pid):
        stat = read_stat(child)
        if stat is not None:
            commands[child] = read_small(f"/proc/{child}/cmdline")
            if any(word.endswith(_RAY_SERVICES) for word in (commands[child] or b"").split(b"\0")[:4]):
                continue
            forked = bool(commands[child]) and commands[child] == commands.get(stat.parent)
            channel = read_wait_channel(child)
            left_s = read_sleep_left(child, read_syscall(child)) if "nanosleep" in (channel or "") else None
            yield ChildProcess(
                child,
                stat.name,
                stat.state,
                stat.cpu_s,
                channel,
                forked=forked,
                threads=stat.threads,
                sleep_left_s=left_s,
                io_bytes=parse_io(read_small(f"/proc/{child}/io", 1024) or b""),
                switches=parse_switches(read_small(f"/proc/{child}/status", 8192) or b""),
                exit=parse_wait_status(stat.wait_status) if is_zombie(stat) else None,
            )


def _children_of(pid: int) -> Iterator[int]:
    """Yield the direct children of a process: those of each of its threads."""
    for thread in list_folder(f"/proc/{pid}/task"):
        for child in (read_small(f"/proc/{pid}/task/{thread}/children") or b"").split():
            yield int(child)
