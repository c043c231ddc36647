"""What a rank leaves when its program ends: its last recorded operations, and what ended it.

The file ``RUN_DIR/ranks/PID.left`` is a pickle of plain data, read by ``sources/beats/left.py``. If this rank has
failed, the others of its node are asked for theirs before it is written. Nothing here runs before the end. Standard
library only.

Gloo itself ends a process if a message does not fit (``op.preamble.length <= op.nbytes``): an exception in a C++
thread, so ``std::terminate``, so SIGABRT. No Python code runs then except a callback given to ``set_terminate``
(libstdc++), which runs before the previous handler; that one prints and aborts as ever. The callback waits for the
GIL without a limit: an abort becomes a hang if a thread never releases the GIL, or in a child that C++ has forked
(nobody there holds it). So it is set only in ranks whose environment has ``HANGWATCH_ABORTS=1``, and removed once a
group uses NCCL, whose watchdog writes dumps of its own.
"""
# Plain os calls: this runs in the rank.
# ruff: noqa: PTH208

from __future__ import annotations

import ctypes
import os
import pickle
import socket
import sys
import threading
import time
from typing import Any

from . import failures
from .beat import write_whole
from .recorder import Recorder
from .server import reachable

LEFT_VERSION = 1
_FRAMES_LEFT = 100


def ask_others(run_dir: str, store: str) -> None:
    """Have the probes of this node's other ranks leave theirs at once: their launcher may end them within 0.1 s.

    ``store``: where the ranks met, empty if not known; ranks of another job do not answer.
    """
    own = "%d.control" % os.getpid()
    for name in os.listdir(run_dir + "/ranks"):
        if name.endswith(".control") and name != own:
            try:
                _send("%s/ranks/%s" % (run_dir, name), b"leave %s\n" % store.encode())
            except OSError:
                pass


def _send(path: str, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client, reachable(path) as short:
        client.connect(short)
        client.send(line, socket.MSG_NOSIGNAL)


def leave(path: str, known: dict[str, Any], how: str, recorders: list[Recorder]) -> None:
    """Write ``path``.

    ``how``: ``exit``; ``terminate`` if C++ ends the process; ``asked`` if another rank has failed. ``known``:
    everything else to be said. The recorder's pickle is written as it is: decoding or even cutting it would take as
    long again.
    """
    if how == "exit":
        stack, error = failures.read_uncaught_calls()
    else:
        stack, error = _main_stack(), _read_thrown() if how == "terminate" else []
    dumps = {recorder.backend: recorder.read_flight(only_active=False) for recorder in recorders}
    left = dict(
        known, version=LEFT_VERSION, at_ns=time.time_ns(), how=how, stack=stack[:_FRAMES_LEFT], error=error, dumps=dumps
    )
    write_whole(path, pickle.dumps(left, protocol=4))


def _main_stack() -> list[tuple[str, str, int]]:
    """Return where the main thread is, deepest first."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    found = []
    while frame is not None:
        found.append((frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def _library() -> Any:
    return ctypes.CDLL("libstdc++.so.6", mode=os.RTLD_NOLOAD | os.RTLD_NOW)  # torch's own


def _read_thrown() -> list[str]:
    """Return the type of the C++ exception that this thread has thrown and nobody caught: ``gloo::EnforceNotMet``."""
    library = _library()
    current = library["__cxa_current_exception_type"]
    current.restype = ctypes.c_void_p
    info = current()
    if not info:
        return []
    name = ctypes.cast(info, ctypes.POINTER(ctypes.c_char_p))[1]  # of std::type_info: behind its table of functions
    demangle = library["__cxa_demangle"]
    demangle.restype = ctypes.c_char_p
    shown = demangle(ctypes.c_char_p(name), None, None, None)
    return [failures.clean((shown or name or b"").decode("utf-8", "replace"))]


class TerminateHook:
    """Calls ``report`` if C++ ends the process by ``std::terminate``; ``remove`` it before the interpreter ends."""

    def __init__(self, report: Any) -> None:
        self._report = report
        self._pid = os.getpid()
        self._kind = ctypes.CFUNCTYPE(None)
        self._callback = self._kind(self._terminated)
        self._set = _library()["_ZSt13set_terminatePFvvE"]
        self._set.restype, self._set.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        self._own = ctypes.cast(self._callback, ctypes.c_void_p)
        self._previous = self._set(self._own)

    def _terminated(self) -> None:
        try:
            self._set(self._previous)  # once, in whatever thread
            if os.getpid() == self._pid:
                self._report()
        except BaseException:
            pass
        if self._previous:
            self._kind(self._previous)()

    def remove(self) -> None:
        """Restore the previous handler, unless somebody has set another since."""
        present = self._set(self._previous)
        if present != self._own.value:
            self._set(present)
