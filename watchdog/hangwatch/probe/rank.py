"""The probe of one rank: a daemon thread that beats, answers the control socket, and keeps to itself.

Standard library; torch only through modules that the program has imported. Every failure stays in the beat's
``problems``; none reaches the program.
"""
# Plain os calls: this runs in the rank.
# ruff: noqa: PTH100, PTH108, PTH112

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from typing import Any

from . import failures, identity, leaving, tasks, training
from .beat import BEAT_PERIOD_S, BEAT_VERSION, encode_beat, write_whole
from .control import Control
from .groups import GroupTable
from .recorder import Recorder, find_recorders
from .server import ask_server, block_signals, start_server

THREAD_NAME = "hangwatch-probe"
#: A beat takes milliseconds, and seconds where each core has ten threads to run. A thread that is in torch while the interpreter
#: ends may crash the process, so it is waited for that long.
_STOP_TIME_S = 5.0
_PROBLEM_LIMIT = 8
#: After how long without a move in any group handled exceptions and waiting tasks are read.
_STUCK_S = 1.0


class Probe:
    """Starts once a process is a rank; call ``stop`` at exit, ``abandon`` in a forked child.

    ``alone``: the process trains, and nothing has made it a rank so far.
    """

    def __init__(self, run_dir: str, c10d: Any, alone: bool = False) -> None:
        self._c10d = c10d
        self._alone = alone
        self._telemetry = training.Telemetry()
        self._torch = sys.modules["torch"]
        self._bindings = sys.modules["torch._C._distributed_c10d"]
        self._run_dir = os.path.abspath(run_dir)
        self._stem = "%s/ranks/%d" % (self._run_dir, os.getpid())
        self._server: str | None = None
        self._server_due = True
        self._problems: dict[str, str] = {}
        self._counter = 0
        self._stopping = False
        self._ends = False
        self._recorders = find_recorders(self._bindings)
        self._terminates: leaving.TerminateHook | None = None
        #: The groups of the last beat that had any: a program destroys its groups before it ends.
        self._groups: list[str] = []
        self._table = GroupTable(c10d, self._torch, self._recorders, self._read_entries)
        self._identity = identity.ALONE if alone else identity.read_identity(os.environ)
        self._control = Control(self._answer)
        self._listening = False
        self._raising: Any = None
        #: The exception that the main thread handled when it was first seen stuck, and since when nothing has moved.
        self._handled_first: list[str] = []
        self._stuck_since: float | None = None
        if os.environ.get("HANGWATCH_RAISE") == "1":
            from .raising import Raising

            self._raising = Raising(c10d)
        self._constant = {
            "version": BEAT_VERSION,
            "pid": os.getpid(),
            "start_ticks": identity.read_start_ticks(),
            "local_rank": self._identity.local_rank,
            "torch": str(self._torch.__version__),
            "python": platform.python_version(),
        }
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

    def start(self) -> None:
        """Start the thread; everything else happens in it."""
        try:
            failures.watch_threads()
        except Exception as error:
            self._note("failures", "could not watch exceptions that end threads: %r" % (error,))
        self._thread.start()

    def joins(self, rank: int, world_size: int) -> None:
        """Note which rank this will be, as the program itself says."""
        self._identity = self._identity._replace(rank=rank, world_size=world_size)

    def beat_now(self) -> None:
        """Beat without delay: there is a group, and the program may hang at once, where no thread of Python runs."""
        self._control.wake()

    def stop(self) -> None:
        """End the thread with a last beat before the interpreter ends (it must not be in torch then); remove the sockets."""
        if self._terminates is not None:
            self._terminates.remove()
        self._ends = self._stopping = True
        if getattr(sys, "last_value", None) is not None:
            self._ask_others()
        self._control.wake()
        self._thread.join(_STOP_TIME_S)
        for path in (self._stem + ".control" if self._listening else None, self._server):
            if path is not None:
                try:
                    os.unlink(path)
                except OSError:
                    pass

    def abandon(self) -> None:
        """Forget the probe, in a forked child. The parent's sockets and files stay as they are."""
        self._stopping = True
        if self._terminates is not None:
            self._terminates.remove()
        failures.forget_threads()
        self._control.close()

    def _run(self) -> None:
        try:
            sys.settrace(None)  # a trace function that a debugger set for all threads is not meant for us
            sys.setprofile(None)
            block_signals()
        except Exception as error:
            self._note("thread", "could not set the probe's thread apart: %r" % (error,))
        if os.environ.get("HANGWATCH_ABORTS") == "1":
            try:
                self._terminates = leaving.TerminateHook(self._terminated)
            except Exception as error:
                self._note("terminate", "what C++ ends leaves nothing: %r" % (error,))
        while not self._stopping:
            self._beat()
            try:
                self._control.serve(time.monotonic() + BEAT_PERIOD_S)
            except Exception as error:
                self._note("control", "the control socket failed: %r" % (error,))
                time.sleep(BEAT_PERIOD_S)
        if self._ends:
            self._beat()
            self._leave("exit")

    def _open_server(self) -> None:
        """Start torch's server, once there is a group to be asked about.

        A program that closes all its descriptors does so before that: its groups need theirs. The server would not
        survive it, and end the process.
        """
        self._server_due = False
        try:
            start_server(self._bindings, self._torch, self._stem + ".server")
            self._server = self._stem + ".server"
        except Exception as error:
            self._note("server", "no worker server: %s" % (error,))

    def _terminated(self) -> None:
        """Leave the last word in the thread in which C++ ends this process."""
        self._ask_others()
        self._leave("terminate")

    def _ask_others(self) -> None:
        try:
            leaving.ask_others(self._run_dir, self._table.store)
        except Exception as error:
            self._note("others", "the other ranks could not be asked: %r" % (error,))

    def _leave(self, how: str) -> None:
        """Leave the end of the record, if this rank has had others to communicate with."""
        size = self._table.world_size or self._identity.world_size or 1
        if size < 2:
            return
        try:
            known = {
                "pid": os.getpid(),
                "start_ticks": self._constant["start_ticks"],
                "rank": self._table.rank if self._table.rank is not None else self._identity.rank,
                "world_size": size,
                "groups": "[%s]" % ",".join(self._groups),
                "reported": failures.keeps_exceptions(),
            }
            leaving.leave(self._stem + ".left", known, how, self._recorders)
        except Exception as error:
            self._note("left", "the end of the record could not be written: %r" % (error,))

    def _beat(self) -> None:
        """Write one beat. A beat that cannot be written is tried again with the next."""
        try:
            groups = self._table.render()
            self._problems.pop("groups", None)
            if self._table.nameless:
                self._note(
                    "names", "Gloo operations are recorded without their groups (TORCH_DISTRIBUTED_DEBUG=DETAIL)"
                )
        except Exception as error:
            groups = []
            self._note("groups", "could not read the process groups: %r" % (error,))
        if self._raising is not None and self._raising.problem:
            self._note("raise", self._raising.problem)
        self._groups = groups or self._groups
        if groups and self._server_due and os.path.isdir("%s/ranks" % self._run_dir):
            self._open_server()
        if self._terminates is not None and self._table.uses_nccl:
            self._terminates.remove()
            self._terminates = None
        self._counter += 1
        table = self._table
        waiting, failed = self._read_tasks()
        handled, thread_handled = self._read_handled()
        try:
            fields: dict[str, Any] = dict(
                self._constant,
                counter=self._counter,
                at_ns=time.time_ns(),
                rank=table.rank if table.rank is not None else self._identity.rank,
                world_size=table.world_size if table.world_size is not None else self._identity.world_size,
                initialized=table.initialized,
                alone=self._alone and not table.initialized,
                groups_created=table.groups_created,
                failure=failures.read_uncaught(),
                raised=self._raising is not None and self._raising.raised,
                ended=self._ends and failures.keeps_exceptions(),
                thread_failure=failures.read_threads(),
                handled=handled,
                thread_handled=thread_handled,
                tasks=waiting,
                task_failure=failed,
                server=self._find_server(),
                control=self._listen(),
                problems=list(self._problems.values())[:_PROBLEM_LIMIT],
                store=table.store,
            )
            write_whole(self._stem + ".beat", encode_beat(fields, groups, self._render_telemetry()))
            self._problems.pop("beat", None)
        except Exception as error:
            self._note("beat", "could not write the heartbeat: %s" % (error,))

    def _read_handled(self) -> tuple[list[str], list[str]]:
        """Return what the main thread is handling, and what other threads are, if nothing moves."""
        if self._table.unmoved_s < _STUCK_S:
            self._stuck_since, self._handled_first = None, []
            return [], []
        try:
            handled, by_threads = failures.read_all_handled()
        except Exception as error:
            self._note("handled", "could not read the exception that is being handled: %r" % (error,))
            return [], []
        if self._stuck_since != self._table.moved_at:
            self._stuck_since, self._handled_first = self._table.moved_at, handled
        return handled, by_threads

    def _read_tasks(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return where coroutines wait, and which tasks have failed, if nothing moves in the rank."""
        try:
            return tasks.read_tasks() if self._table.unmoved_s >= _STUCK_S else ([], [])
        except Exception as error:
            self._note("tasks", "could not read the event loops: %r" % (error,))
            return [], []

    def _render_telemetry(self) -> str:
        """Return what training says, as JSON; empty if it says nothing."""
        try:
            return self._telemetry.render(time.time_ns())
        except Exception as error:
            self._note("telemetry", "could not read the training metrics: %r" % (error,))
            return ""

    def _listen(self) -> str | None:
        """Return the control socket, opened again if the program or a cleaner has taken it; None if it cannot be opened."""
        path = self._stem + ".control"
        try:
            self._control.listen(path)
        except Exception as error:
            self._note("control", "no control socket: %s" % (error,))
            return None
        self._problems.pop("control", None)
        self._listening = True
        return path

    def _find_server(self) -> str | None:
        if self._server is None or os.path.lexists(self._server):
            return self._server
        self._note("server", "the socket server is gone and cannot be recreated")
        return None

    def _answer(self, words: list[str]) -> bytes:
        """Return the answer to a request.

        ``flight [active] [nccl|gloo]``: the pickle of that recorder, or of the one in use (NCCL's before Gloo's).
        ``leave [STORE]``: nothing; writes what this rank would leave if it ended now, if its ranks met at ``STORE``.
        ``raise TEXT``, then ``break``: ``begun``, or ``refused`` if the environment does not allow it.
        """
        if words[:1] in (["raise"], ["break"]):
            if self._raising is None:
                return b"refused"
            if words[0] == "raise":
                self._raising.arm(" ".join(words[1:]), self._handled_first)
            else:
                self._raising.break_waits()
            return b"begun"
        if words[:1] == ["leave"]:
            if not self._stopping and (not words[1:] or words[1] == self._table.store or not self._table.store):
                self._leave("asked")
            return b""
        if words[:1] != ["flight"]:
            return b""
        wanted = [r for r in self._recorders if r.backend in words[1:]] or self._recorders
        try:
            recorder = self._in_use(wanted)
            return recorder.read_flight(only_active="active" in words[1:]) if recorder is not None else b""
        except Exception as error:
            self._note("flight", "could not read the flight recorder: %r" % (error,))
            return b""

    def _in_use(self, recorders: list[Recorder]) -> Recorder | None:
        return next(
            (r for r in recorders if r.parse_status(r.read_status()).progress), recorders[-1] if recorders else None
        )

    def _read_entries(self) -> bytes:
        """Return Gloo's entries as JSON: from our own worker server, which needs no GIL for it, or else directly."""
        if self._server is not None:
            try:
                return ask_server(self._server, "fr_trace_json")
            except OSError:
                pass
        return next((r.read_entries() for r in self._recorders if r.backend == "gloo"), b"")

    def _note(self, key: str, text: str) -> None:
        self._problems[key] = text[:300]
