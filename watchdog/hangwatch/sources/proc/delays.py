"""What a process's main thread does for the kernel, and for how long it may not run though it could.

May import the standard library and this room. ``/proc/PID/schedstat``: ns on a core, ns waiting for one, time slices
(Documentation/scheduler/sched-stats.rst). ``cpu.stat`` of a cgroup: ``throttled_usec`` in v2 (cgroup-v2.rst), ``throttled_time``
in ns in v1 (sched-bwc.rst).
"""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple

from hangwatch.sources.proc.blocking import read_syscall
from hangwatch.sources.proc.files import read_small, read_stat
from hangwatch.sources.proc.samples import read_cgroup

_READS = frozenset(
    {
        "read", "readv", "pread64", "preadv", "recvfrom", "recvmsg", "recvmmsg", "open", "openat", "stat", "newfstatat",
        "statx", "getdents64", "select", "pselect6", "poll", "ppoll", "epoll_wait", "epoll_pwait", "epoll_pwait2",
    }
)  # fmt: skip
_CPU_ROOTS = ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct")
_UNIFIED = ("/sys/fs/cgroup",)
_MOST_DIGITS = len(str(2**64))


class Delays(NamedTuple):
    """Shares of the time, 0 to 1, that a main thread was reading, sleeping, locked out, running, waiting for a core, throttled.

    None if not known.
    """

    reading: float | None
    sleeping: float | None
    locked: float | None
    running: float | None
    queued: float | None
    throttled: float | None


class DelayMeter:
    """Looks at one process again and again, from ``look`` to ``look``; ``read`` says what has been seen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._seen: Counter[str] = Counter()
        self._began_s = time.monotonic()
        self._ran_ns, self._queued_ns = read_core_ns(pid)
        self._throttled_ns = read_throttled_ns(pid)

    def look(self) -> None:
        """See what the main thread is in now."""
        call = read_syscall(self.pid)
        if call is not None and call.asleep:
            stat = read_stat(self.pid)  # a process that is stopped while it sleeps does not sleep
            self._seen["sleeping" if stat is not None and stat.state not in "Tt" else "stopped"] += 1
        else:
            name = call.name if call is not None else ""
            self._seen["reading" if name in _READS else "locked" if name == "futex" else "other"] += 1

    def read(self) -> Delays:
        """Return what has been seen since it began."""
        took_ns = (time.monotonic() - self._began_s) * 1e9
        looks = self._seen.total()

        def share(before: int | None, now: int | None) -> float | None:
            return (now - before) / took_ns if before is not None and now is not None and took_ns > 0 else None

        reading, sleeping, locked = (
            self._seen[on] / looks if looks else None for on in ("reading", "sleeping", "locked")
        )
        ran_ns, queued_ns = read_core_ns(self.pid)
        return Delays(
            reading,
            sleeping,
            locked,
            share(self._ran_ns, ran_ns),
            share(self._queued_ns, queued_ns),
            share(self._throttled_ns, read_throttled_ns(self.pid)),
        )


def read_core_ns(pid: int) -> tuple[int | None, int | None]:
    """Return for how long the main thread has been on a core, and has waited for one, in ns; None if that is not counted."""
    return parse_core_ns(read_small(f"/proc/{pid}/task/{pid}/schedstat", 256) or b"")


def parse_core_ns(data: bytes) -> tuple[int | None, int | None]:
    """Parse ``/proc/PID/schedstat``."""
    fields = data.split()
    return (_parse_count(fields[0]), _parse_count(fields[1])) if len(fields) >= 3 else (None, None)


def read_throttled_ns(pid: int) -> int | None:
    """Return for how long the cgroup of a process has been throttled, in ns; None if that is not visible here."""
    stats = read_cgroup(pid, ("", _UNIFIED, "cpu.stat"), ("cpu", _CPU_ROOTS, "cpu.stat"))
    return next((found for data in stats if (found := parse_throttled_ns(data)) is not None), None)


def parse_throttled_ns(data: bytes) -> int | None:
    """Parse a cgroup's ``cpu.stat``, of v1 or v2; None if it counts no throttling."""
    for line in data.splitlines():
        name, _, value = line.partition(b" ")
        count = _parse_count(value.strip()) if name in {b"throttled_usec", b"throttled_time"} else None
        if count is not None:
            return count * (1000 if name == b"throttled_usec" else 1)
    return None


def _parse_count(field: bytes) -> int | None:
    """Parse a number of 64 bits; None if it is something else."""
    return int(field) if field.isdigit() and len(field) <= _MOST_DIGITS else None
