"""How a rank ends: a main thread in the interpreter's shutdown, a process that is gone; a job that outlives its failure. Pure.

Where nothing supervises the ranks (``srun`` without ``--kill-on-bad-exit``, a pod a rank), one may die, and the others fail for
want of it and stay all the same, for a thread or a child of theirs. No rank waits for another, and the job does not end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

from hangwatch.analysis.places import bare, calls
from hangwatch.analysis.ranks.views import RankView
from hangwatch.model.processes import ExitStatus
from hangwatch.model.stacks import Frame

#: Functions in which an interpreter's main thread ends, and the files they are in.
_SHUTDOWN = {
    "threading.py": ("_shutdown",),
    "concurrent/futures/thread.py": ("_python_exit",),
    "concurrent/futures/process.py": ("_python_exit",),
    "multiprocessing/util.py": ("_exit_function", "_run_finalizers"),
    "weakref.py": ("_exitfunc",),
    "logging/__init__.py": ("shutdown",),
}
#: The outermost frames of a thread that still runs its program: a script, ``-m``, a started child's beginning, or a call of
#: ``torch.distributed.rpc`` (``rpc/internal.py``, torch 2.13).
_BEGINNINGS = frozenset(
    {
        "<module>",
        "_run_module_as_main",
        "_run_code",
        "_bootstrap",
        "_bootstrap_inner",
        "spawn_main",
        "_main",
        "_run_function",
    }
)


def shutdown_frame(frames: Sequence[Frame]) -> Frame | None:
    """The frame that shows a main thread shutting down: the outermost is the interpreter's own exit, and no program is on it."""
    child = calls(frames, "multiprocessing/process.py", "_bootstrap")
    if child is not None:
        # Its program is what ``run`` calls; a module further out is how it was started, or its parent's.
        frames = frames[: list(frames).index(child)]
        if calls(frames, "multiprocessing/process.py", "run") is not None:
            return None
    if not frames or any(bare(f) == "<module>" for f in frames):
        return None
    for part, functions in _SHUTDOWN.items():
        found = calls(frames, part, *functions)
        if found is not None:
            return found
    # Hooks of ``atexit`` are called from C: what runs on a main thread under no module at all is one of them.
    return frames[-1] if bare(frames[-1]) not in _BEGINNINGS and child is None else None


def exit_of(view: RankView) -> ExitStatus | None:
    """How a rank's process ended, where that was seen."""
    return next((p.exit for p in reversed(view.capture.processes) if p.exit is not None), None)


def ended_well(view: RankView) -> bool:
    """Whether its process has ended by itself and without an error, as far as that was seen."""
    end = exit_of(view)
    well = not _failed(end) if _seen(end) else view.capture.ended
    return view.gone and well and not view.capture.log_error


def failed_ranks(views: Mapping[int, RankView], world: Sequence[int]) -> tuple[int, ...]:
    """The ranks that have died of a failure, where all others have ended or are stuck in their shutdown; else none.

    Every rank has to have been seen: one that is still at work may end the job yet. Where it was not seen how a process ended,
    those that stay have to have failed: a job may be idle at its end while some rank still sends off what it has logged.
    """
    if views.keys() != set(world):
        return ()
    staying = [v for v in views.values() if not v.gone]
    if not staying or any(v.motion.state != "stuck" or shutdown_frame(v.frames) is None for v in staying):
        return ()
    all_failed = all(v.capture.log_error or v.capture.handled_error for v in staying)
    gone = {r: exit_of(v) for r, v in views.items() if v.gone}
    return tuple(sorted(r for r, end in gone.items() if (_failed(end) if _seen(end) else all_failed)))


def _seen(end: ExitStatus | None) -> TypeGuard[ExitStatus]:
    return end is not None and (end.signal is not None or end.code is not None)


def _failed(end: ExitStatus) -> bool:
    return end.signal is not None or end.code != 0
