"""How a rank ends: in the interpreter's shutdown, or as a process that is gone; and a job that outlives its failure. Pure.

If nothing supervises the ranks (``srun`` without ``--kill-on-bad-exit``, a pod a rank), one may die, and the others
fail because of it but stay alive for a thread or a child. Then no rank waits for another, and the job does not end.
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
    """Return the frame that shows a main thread in the interpreter's exit, without the program on its stack; else None."""
    child = calls(frames, "multiprocessing/process.py", "_bootstrap")
    if child is not None:
        # The program of a child is what ``run`` calls; a module further out belongs to its start, or to its parent.
        frames = frames[: list(frames).index(child)]
        if calls(frames, "multiprocessing/process.py", "run") is not None:
            return None
    if not frames or any(bare(f) == "<module>" for f in frames):
        return None
    for part, functions in _SHUTDOWN.items():
        found = calls(frames, part, *functions)
        if found is not None:
            return found
    # Hooks of ``atexit`` are called from C: a main thread that runs under no module at all is in one of them.
    return frames[-1] if bare(frames[-1]) not in _BEGINNINGS and child is None else None


def exit_of(view: RankView) -> ExitStatus | None:
    """Return how a rank's process ended; None if that was not seen."""
    return next((p.exit for p in reversed(view.capture.processes) if p.exit is not None), None)


def ended_well(view: RankView) -> bool:
    """True if its process has ended by itself and without an error, as far as that was seen."""
    end = exit_of(view)
    well = not _failed(end) if _seen(end) else view.capture.ended
    return view.gone and well and not view.capture.log_error


def failed_ranks(views: Mapping[int, RankView], world: Sequence[int]) -> tuple[int, ...]:
    """Return the ranks that have died of a failure, if all others have ended or are stuck in their shutdown; else none.

    Every rank must have been seen: one that is still at work may end the job yet. If it was not seen how a process
    ended, it counts only if those that stay have failed: a job may be idle at its end while a rank still sends off what
    it has logged.
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
