"""``--on-hang raise``: this rank's waits are broken from within, and its main thread raises ``HangDetected``.

Standard library; torch only through what the program has imported. Imported only where ``HANGWATCH_RAISE`` asks for it, and
nothing here runs before the agent says that the job hangs. Python runs a pending call in the main thread before its next
instruction; what it raises is raised there. A wait in C sees none of that until it ends, so it is ended as its backend allows:

- NCCL: ``ProcessGroup.abort`` aborts the communicators (``ProcessGroupNCCL.cpp``, torch 2.6 on). Kernels end, the host's wait
  returns as if all were well, and the exception is raised at the next instruction.
- Gloo has no abort (``Backend::abort`` does nothing). Its connections are shut down: the operation fails as if the peer had
  gone (``gloo/transport/tcp/pair.cc``). They are those that its loop waits for as ``gloo::transport::tcp::Pair``.
"""
# Plain os calls: this runs in the rank.
# ruff: noqa: PTH115, PTH123, PTH208

from __future__ import annotations

import ctypes
import os
import re
import socket
import sys
import threading
from typing import Any, Iterator

from . import NAME
from .failures import read_handled

THREAD_NAME = "hangwatch-raise"
#: A line of ``/proc/self/fdinfo/N`` of an epoll descriptor: what it waits for, the pointer that it was given, the inode.
_WATCHED = re.compile(r"tfd:\s*(\d+) events:\s*\w+ data:\s*(\w+)\s+pos:\s*\w+ ino:(\w+)")
#: The class of Gloo's connections as C++ names it: ``gloo::transport::tcp::Pair``, and that of ``tls``.
_PAIR = re.compile(rb"N4gloo9transport3tcp(?:3tls)?4PairE")
#: In the text of an error of Gloo's connections: the file that raised it.
_CONNECTION = "gloo/transport/tcp/pair.cc"
#: Where torch handles what a collective of ``torch.distributed`` has raised, to log it and raise it again.
_LOGGER = "torch.distributed.c10d_logger"


class Raising:
    """Raises once. ``raised``: True once that has reached the main thread."""

    def __init__(self, c10d: Any) -> None:
        self._c10d = c10d
        self._arrival: _Arrival | None = None
        self._breaking = False
        self.problem = ""

    @property
    def raised(self) -> bool:
        """True once the main thread has been reached."""
        return self._arrival is not None and self._arrival.reached

    def arm(self, text: str, handled: list[str]) -> None:
        """Have the main thread raise once it runs Python again, which it may do at once.

        ``text``: what the exception says. ``handled``: what ``read_handled`` said of the main thread when the
        standstill began.
        """
        if self._arrival is not None:
            return
        self._arrival = _Arrival(sys.modules[NAME].HangDetected(text), handled)
        try:
            self._arrival.send()
        except Exception as error:
            self.problem = "could not reach the main thread: %r" % (error,)

    def break_waits(self) -> None:
        """End the waits, once, in a thread of its own, because an abort may block. Does nothing unless armed before."""
        if self._arrival is None or self._breaking:
            return
        self._breaking = True
        threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()

    def _run(self) -> None:
        for what, shut in (("Gloo", _shut_pairs), ("NCCL", self._abort_groups)):
            try:
                shut()
            except Exception as error:
                self.problem = "could not end waits of %s: %r" % (what, error)

    def _abort_groups(self) -> None:
        """Abort as ``_abort_process_group`` (``distributed_c10d.py``); groups stay known, as the program may destroy them."""
        names = dict(self._c10d._world.pg_names)
        nccl = getattr(self._c10d, "ProcessGroupNCCL", None)
        backends = [backend for group in names for backend in _backends(group) if nccl and isinstance(backend, nccl)]
        if not backends:
            return
        backends[0]._group_start()
        try:
            for group in sorted(names, key=lambda one: str(names[one]), reverse=True):
                group.abort()
        finally:
            backends[0]._group_end()


class _Arrival:
    """An object whose truth value the main thread asks for before its next instruction; asking raises."""

    def __init__(self, error: BaseException, handled: list[str]) -> None:
        self._error = error
        self._handled = handled
        self._before: Any = None
        self.reached = False

    def send(self) -> None:
        """Have the main thread run ``__bool__``. Raises RuntimeError if Python has no room for another pending call."""
        current = getattr(sys, "_current_exceptions", None)  # Python 3.10 and later; a triple each up to 3.11
        found = current().get(threading.main_thread().ident) if current is not None else None
        value = found[1] if isinstance(found, tuple) else found
        # Other ranks may have raised already: this one may now be handling their closed connections.
        lost = type(value) is RuntimeError and _CONNECTION in str(value) and read_handled() != self._handled
        self._before = None if lost else value
        # Our own function objects: attributes of pythonapi, with their argument types, are shared with the program.
        api = ctypes.pythonapi
        truth = ctypes.cast(api["PyObject_IsTrue"], ctypes.c_void_p)
        hold = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", api))
        add = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object)(("Py_AddPendingCall", api))
        hold(self)  # it may arrive long after this thread has ended
        if add(truth, self) != 0:
            raise RuntimeError("too many calls are pending")

    def __bool__(self) -> bool:
        """Raise in the program.

        If the broken wait has raised an exception itself, the text is added to that one: another exception could
        arrive before its ``finally`` runs.
        """
        self.reached = True
        met = sys.exc_info()[1]
        if not isinstance(met, RuntimeError) or met is self._before:
            raise self._error
        handled_by = met.__traceback__.tb_frame.f_globals if met.__traceback__ is not None else {}
        if handled_by.get("__name__") == _LOGGER:
            raise self._error
        met.args = ("%s [raised as %s: %s]" % (self._error, type(met).__name__, met),)
        return False


def _backends(group: Any) -> Iterator[Any]:
    """Yield the backends that serve a group, for the devices that torch has registered with it."""
    for device in getattr(group, "_device_types", ()):
        try:
            yield group._get_backend(device)
        except RuntimeError:
            continue


def _shut_pairs() -> None:
    for descriptor, inode in _find_pairs():
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            if os.fstat(connection.fileno()).st_ino == inode:  # the descriptor may have been reused
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # it is closed already
                    pass


def _find_pairs() -> Iterator[tuple[int, int]]:
    """Yield Gloo's connections in this process: descriptor and inode.

    Gloo gives ``epoll_ctl`` the object that handles a descriptor (``gloo/transport/tcp/loop.cc``), the kernel shows
    that pointer, and by the Itanium C++ ABI the object leads to the name of its class. Memory is read through the
    kernel, so a number that is no pointer gives an error, not a crash.
    """
    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for name in os.listdir("/proc/self/fd"):
            try:
                if os.readlink("/proc/self/fd/" + name) != "anon_inode:[eventpoll]":
                    continue
                with open("/proc/self/fdinfo/" + name, encoding="ascii") as file:
                    watched = _WATCHED.findall(file.read())
            except OSError:
                continue
            for descriptor, data, inode in watched:
                if _PAIR.fullmatch(_read_class(memory, int(data, 16))):
                    yield int(descriptor), int(inode, 16)
    finally:
        os.close(memory)


def _read_class(memory: int, address: int) -> bytes:
    """Return the mangled class name of the C++ object at an address; empty if there is none."""
    try:
        table = _read_pointer(memory, address)
        kind = _read_pointer(memory, table - ctypes.sizeof(ctypes.c_void_p))
        name = _read_pointer(memory, kind + ctypes.sizeof(ctypes.c_void_p))
        return os.pread(memory, 64, name).partition(b"\0")[0]
    except (OSError, OverflowError, ValueError):
        return b""


def _read_pointer(memory: int, address: int) -> int:
    return int.from_bytes(os.pread(memory, ctypes.sizeof(ctypes.c_void_p), address), sys.byteorder)
