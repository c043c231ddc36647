"""How processes end that are not our children: the kernel forgets it once their parent has asked.

A pidfd (Linux 5.3) tells at once that a process has ended. ``/proc/PID/stat`` tells how, while the process is a zombie
(proc_pid_stat(5)): until its parent asks, which torchrun does within a tenth of a second. After that the pidfd tells it, from
Linux 6.15 on (``PIDFD_GET_INFO`` in include/uapi/linux/pidfd.h of 6.18).

May import hangwatch.model and hangwatch.sources' own parts.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Iterable

from hangwatch.model.capture import RankIdentity
from hangwatch.model.processes import ExitStatus
from hangwatch.sources.proc.files import is_same_start, is_zombie, read_stat
from hangwatch.sources.proc.samples import parse_wait_status

#: struct pidfd_info as it was first: its mask (64 bits), 12 other words, and the wait status.
_INFO = struct.Struct("=Q52xi")
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11
_INFO_EXIT = 1 << 3

#: The pid of a process and when it began.
_Key = tuple[int, float]


class ProcessEnds:
    """Sees how processes end, in a thread of its own: the event loop may be busy. Call ``close`` at the end.

    ``ended`` is called in that thread after each end.
    """

    def __init__(self, ended: Callable[[], object]) -> None:
        self._ended = ended
        self._lock = threading.Lock()
        self._followed: dict[_Key, int] = {}
        self._statuses: dict[_Key, ExitStatus | None] = {}
        self._epoll = select.epoll()
        self._stop, self._stopping = os.pipe()
        self._epoll.register(self._stop, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="hangwatch ends", daemon=True)
        self._thread.start()

    def follow(self, processes: Iterable[RankIdentity]) -> None:
        """See how these end too. One that cannot be followed is left out: it is gone, or the kernel has no pidfds."""
        for one in processes:
            key = (one.pid, one.start_time)
            if key in self._followed or key in self._statuses:
                continue
            try:
                descriptor = os.pidfd_open(one.pid)
            except (AttributeError, OSError):  # a Python that was built for an older Linux has no such call
                continue
            stat = read_stat(one.pid)
            if stat is None or not is_same_start(stat, one.start_time):  # the pid may be another's by now
                os.close(descriptor)
                continue
            with self._lock:
                self._followed[key] = descriptor
                self._epoll.register(descriptor, select.EPOLLIN)

    def take(self, processes: Iterable[RankIdentity]) -> dict[int, ExitStatus]:
        """Return how these have ended, by pid, where that is known, and follow them no longer."""
        keys = {(one.pid, one.start_time) for one in processes}
        with self._lock:
            self._note(keys & self._followed.keys())
            return {key[0]: status for key in keys if (status := self._statuses.pop(key, None)) is not None}

    def close(self) -> None:
        """Follow no process any longer."""
        os.close(self._stopping)
        self._thread.join()
        self._epoll.close()
        for descriptor in (self._stop, *self._followed.values()):
            os.close(descriptor)

    def _run(self) -> None:
        while self._stop not in (ready := {descriptor for descriptor, _ in self._epoll.poll()}):
            with self._lock:
                self._note([key for key, descriptor in self._followed.items() if descriptor in ready])
            self._ended()

    def _note(self, keys: Iterable[_Key]) -> None:
        """Read how these have ended, if they have, and close their pidfds."""
        for key in keys:
            descriptor = self._followed[key]
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if poll.poll(0):
                self._statuses[key] = _read_status(key[0], descriptor)
                del self._followed[key]
                os.close(descriptor)


def _read_status(pid: int, descriptor: int) -> ExitStatus | None:
    """Return how a process has ended; None where the kernel does not tell (any longer)."""
    stat = read_stat(pid)
    if stat is not None and is_zombie(stat):
        return parse_wait_status(stat.wait_status, time.time_ns())
    info = bytearray(_INFO.pack(_INFO_EXIT, 0))
    try:
        fcntl.ioctl(descriptor, _GET_INFO, info)
    except OSError:
        return None
    mask, status = _INFO.unpack(info)
    return parse_wait_status(status, time.time_ns()) if mask & _INFO_EXIT else None
