"""torch's worker server in this process: the recorder's JSON without the GIL. Standard library; torch as handed in.

``_WorkerServer`` (WorkerServer.cpp, torch 2.4 to 2.13) is C++ and runs on threads of its own. Two of its habits would
harm the job and are met here: it announces itself on stderr, and an exception in its thread (too few threads left, an
interrupted accept, its descriptor closed by the program) ends the process.
"""
# Plain os calls: this runs in the rank.
# ruff: noqa: PTH101, PTH108, PTH118, PTH120, PTH123

from __future__ import annotations

import ctypes
import os
import signal
import socket
from contextlib import contextmanager
from typing import Any, Iterator

#: ``sun_path`` holds 108 bytes with its closing NUL.
PATH_LIMIT_BYTES = 107
_LOG_ERROR = 2
_SPARE_THREADS = 64
_SIGNALS_LEFT = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGTRAP,
    signal.SIGSYS,
}


class CannotStart(Exception):
    """The server was not started; the text says why."""


def block_signals() -> None:
    """Leave the program's signals to its own threads; threads started from this one inherit that."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _SIGNALS_LEFT)


def start_server(bindings: Any, torch: Any, path: str) -> None:
    """Start torch's server at ``path`` (unix socket, made 0600), for as long as the process lives.

    Call it with signals blocked. Raises CannotStart, OSError or RuntimeError. The object is never destroyed: its
    destructor prints and joins threads, and at exit the process takes the threads with it anyway.
    """
    server = getattr(bindings, "_WorkerServer", None)
    if server is None:
        raise CannotStart("this torch has no worker server")
    _check_room_for_threads()
    with reachable(path) as short_path, _silence(torch):
        if os.path.lexists(path):
            os.unlink(path)  # of an earlier process with our pid
        started = server(short_path)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(started))
    os.chmod(path, 0o600)


@contextmanager
def reachable(path: str) -> Iterator[str]:
    """Yield a name for a socket path that fits into ``sun_path``: the path itself, or one through its open directory."""
    if len(os.fsencode(path)) <= PATH_LIMIT_BYTES:
        yield path
        return
    directory, _, name = path.rpartition("/")
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield "/proc/self/fd/%d/%s" % (descriptor, name)
    finally:
        os.close(descriptor)


def ask_server(path: str, handler: str, timeout_s: float = 1.0) -> bytes:
    """Return the body of the answer to ``POST /handler/HANDLER``. Raises OSError if there is none in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection, reachable(path) as short_path:
        connection.settimeout(timeout_s)
        connection.connect(short_path)
        request = "POST /handler/%s HTTP/1.0\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" % handler
        connection.sendall(request.encode(), socket.MSG_NOSIGNAL)
        parts = []
        while True:
            part = connection.recv(1 << 20)
            if not part:
                break
            parts.append(part)
    head, _, body = b"".join(parts).partition(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n", 1)[0] + b" ":
        raise OSError("the worker server refused %s" % handler)
    return body


@contextmanager
def _silence(torch: Any) -> Iterator[None]:
    """Suppress warnings of c10's logger (``FLAGS_caffe2_log_level`` of libc10) while the server starts to listen."""
    try:
        library = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
        level = ctypes.c_int.in_dll(ctypes.CDLL(library, mode=os.RTLD_NOLOAD | os.RTLD_NOW), "FLAGS_caffe2_log_level")
    except (OSError, ValueError) as error:
        raise CannotStart("torch's worker server would print into the job's stderr here (%s)" % (error,)) from None
    before = level.value
    level.value = max(before, _LOG_ERROR)
    try:
        yield
    finally:
        level.value = before


def _check_room_for_threads() -> None:
    """Raise CannotStart if the server's threads might hit the limit: that would end the job."""
    import resource

    needed = (os.cpu_count() or 1) + _SPARE_THREADS
    soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if os.geteuid() != 0 and soft != resource.RLIM_INFINITY and soft < 16 * needed:
        raise CannotStart("too few threads allowed for torch's worker server (ulimit -u is %d)" % soft)
    for limit, used in _read_thread_limits():
        if limit - used < needed:
            raise CannotStart("too few threads left for torch's worker server (pids.max %d, in use %d)" % (limit, used))


def _read_thread_limits() -> Iterator[tuple[int, int]]:
    """Yield ``(pids.max, pids.current)`` of our control group and of every one above it that has a limit."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except (OSError, ValueError):
        return
    for _, controllers, group in lines:
        if controllers not in ("", "pids"):
            continue
        root = "/sys/fs/cgroup/pids" if controllers else "/sys/fs/cgroup"
        names = group.strip("/").split("/")
        for depth in range(len(names), -1, -1):
            directory = "/".join([root, *names[:depth]])
            try:
                with open(directory + "/pids.max", encoding="ascii") as file:
                    limit = file.read().strip()
                with open(directory + "/pids.current", encoding="ascii") as file:
                    used = file.read().strip()
                if limit != "max":
                    yield int(limit), int(used)
            except (OSError, ValueError):
                continue
