"""A rank that is no longer there, or never was: dead, failed, gone home early, stopped, not yet joined."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.views import RankView
from hangwatch.causes.frames import bare, calls, where
from hangwatch.causes.hypothesis import Hypothesis, Knowledge
from hangwatch.causes.observations import at_process, at_stack
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import ExitStatus
from hangwatch.model.stacks import Frame
from hangwatch.model.text import format_ranks

DIED = Knowledge(
    id="rank-died",
    title="Its process is gone while others wait for it",
    remedy=(
        "Signal 9 without a culprit is mostly the kernel's memory killer: look at `dmesg` and the cgroup's memory.events, and "
        "lower num_workers, the batch size or what is kept in memory.",
        "Start with torchrun (or set TORCH_NCCL_ASYNC_ERROR_HANDLING=1), so that the others are ended with it.",
    ),
)
RAISED = Knowledge(
    id="rank-raised",
    title="It failed with an exception while others wait for it",
    remedy=(
        "Repair the exception shown: it is the first failure of the job; what the other ranks report later follows from it.",
        "If a thread keeps the process alive after the failure, make it a daemon or close the tracker in `finally`.",
    ),
)
EARLY_EXIT = Knowledge(
    id="early-exit",
    title="It has left training early, without an error",
    remedy=(
        "Look at the end of its log first: an exception that was printed there is the real cause.",
        "Have every rank leave the loop at the same step: all_reduce the decision to stop.",
        "Close trackers and join threads at the end, so that a rank that is done really exits.",
    ),
)
STOPPED = Knowledge(
    id="rank-stopped",
    title="Its process is stopped",
    remedy=(
        "Continue it: `kill -CONT PID`.",
        "Find who stopped it: a shell's Ctrl-Z, a debugger that is attached, a scheduler that suspends, a frozen cgroup "
        "(`cgroup.freeze`).",
    ),
)
INIT_MISSING = Knowledge(
    id="init-missing-rank",
    title="It has not come to init_process_group, where the others wait",
    remedy=(
        "See where that rank is (its stack above), or why it was not started: WORLD_SIZE must be the number of processes.",
        "Check that MASTER_ADDR and MASTER_PORT are the same on all ranks and can be reached from each node.",
    ),
)

#: Functions in which an interpreter's main thread ends, and the files they are in.
_ENDINGS = {
    "threading.py": ("_shutdown",),
    "concurrent/futures/thread.py": ("_python_exit",),
    "concurrent/futures/process.py": ("_python_exit",),
    "multiprocessing/util.py": ("_exit_function", "_run_finalizers"),
    "weakref.py": ("_exitfunc",),
    "logging/__init__.py": ("shutdown",),
}
#: The outermost frames of a main thread that still runs its program: a script, ``-m``, or a started child's beginning.
_BEGINNINGS = frozenset(
    {"<module>", "_run_module_as_main", "_run_code", "_bootstrap", "_bootstrap_inner", "spawn_main", "_main"}
)
_HOOKS = frozenset({"excepthook", "_excepthook", "print_exception", "handle_exception", "format_exception"})


def _exit(view: RankView) -> ExitStatus | None:
    return next((p.exit for p in reversed(view.capture.processes) if p.exit is not None), None)


def _traceback(view: RankView) -> str | None:
    """The last line of the traceback in the rank's log: what was raised."""
    lines = [line.strip() for line in view.capture.log_error if line.strip()]
    return lines[-1] if lines else None


def ending(frames: Sequence[Frame]) -> Frame | None:
    """The frame that shows a main thread ending: the outermost one is the interpreter's own exit, and no program is on it."""
    if not frames or any(bare(f) == "<module>" for f in frames):
        return None
    for part, functions in _ENDINGS.items():
        found = calls(frames, part, *functions)
        if found is not None:
            return found
    # Hooks of ``atexit`` are called from C: what runs on a main thread under no module at all is one of them.
    return frames[-1] if bare(frames[-1]) not in _BEGINNINGS else None


def died(case: Case) -> Hypothesis | None:
    """The process is gone."""
    for rank in case.blame.culprits:
        view = case.views.get(rank)
        if view is None or not view.gone:
            continue
        end = _exit(view)
        failed = _traceback(view)
        if end is not None and end.signal is None and end.code == 0:
            confidence = 0.5
        elif failed is not None and (end is None or end.signal is None):
            confidence = 0.6
        else:
            confidence = 0.95
        said = f"Rank {rank}'s process has ended; the ranks that wait for it will wait for ever."
        return Hypothesis(DIED, confidence, said, at_process(case, rank))
    return None


def raised(case: Case) -> Hypothesis | None:
    """The rank is ending or has ended, and its log or its stack shows an exception."""
    for rank in case.blame.culprits:
        view = case.views.get(rank)
        if view is None:
            continue
        failed = _traceback(view)
        end = _exit(view)
        hook = next((f for f in view.frames if bare(f) in _HOOKS), None)
        last = ending(view.frames)
        clean = end is not None and end.signal is None and end.code == 0
        killed = end is not None and end.signal is not None
        if hook is None and (failed is None or clean or killed or not (view.gone or last is not None)):
            continue
        shown_lines = view.capture.log_error[-2:] if failed else ()
        evidence = tuple(Evidence(rank, "exception", line.strip()) for line in shown_lines)
        shown = hook or last
        evidence += (Evidence(rank, "stack", where(shown)),) if shown else at_process(case, rank)
        said = (
            f"Rank {rank} failed"
            + (f" with {failed}" if failed else "")
            + ("; its process is still there." if not view.gone else ".")
        )
        return Hypothesis(RAISED, 0.92, said, evidence)
    return None


def early_exit(case: Case) -> Hypothesis | None:
    """The main thread is in the interpreter's shutdown, or has exited with 0, and nothing shows an exception."""
    for rank in case.blame.culprits:
        view = case.views.get(rank)
        if view is None:
            continue
        end = _exit(view)
        last = ending(view.frames)
        if view.gone and end is not None and end.signal is None and end.code == 0:
            said = f"Rank {rank} has exited with status 0 while the others still train."
            return Hypothesis(EARLY_EXIT, 0.85, said, at_process(case, rank))
        if last is not None:
            others = [t for t in view.threads if not t.is_main and t.name != "hangwatch-probe" and t.frames]
            evidence: tuple[Evidence, ...] = (Evidence(rank, "stack", where(last)),)
            evidence += tuple(
                Evidence(rank, "stack", f"thread {t.name or t.os_thread_id} keeps it alive, in {where(t.frames[0])}")
                for t in others[:3]
            )
            said = f"Rank {rank}'s main thread has left the program and is in the interpreter's shutdown."
            return Hypothesis(EARLY_EXIT, 0.85 if _traceback(view) is None else 0.5, said, evidence)
        if view.wait is not None and view.wait.op == "destroy_process_group":
            said = f"Rank {rank} is at the end, in destroy_process_group, while the others still train."
            return Hypothesis(EARLY_EXIT, 0.7, said, at_stack(case, rank, view.wait.frame))
    return None


def stopped(case: Case) -> Hypothesis | None:
    """State T or t, or a frozen cgroup."""
    ranks = [r for r in case.blame.culprits if r in case.views and case.views[r].motion.state == "stopped"]
    if not ranks:
        return None
    evidence = tuple(e for r in ranks for e in (*at_process(case, r), *at_stack(case, r)))
    traced = any(case.views[r].capture.processes[-1].state == "t" for r in ranks)
    how = "is held by a tracer (a debugger attached to it)" if traced else "is stopped and runs no instruction"
    return Hypothesis(STOPPED, 0.97, f"Rank {format_ranks(ranks)} {how}.", evidence)


def init_missing(case: Case) -> Hypothesis | None:
    """Those who wait do so in initialization, and the culprits are not in it."""
    waiting = [r for r in case.blame.waiting if (w := case.views[r].wait) is not None and w.kind == "initialization"]
    if not waiting or len(waiting) < len(case.blame.waiting) or not case.blame.culprits:
        return None
    evidence: tuple[Evidence, ...] = ()
    for rank in case.blame.culprits:
        if rank in case.views:
            evidence += (*at_stack(case, rank), *at_process(case, rank))
        else:
            evidence += (Evidence(rank, "process", "no process of this rank was found on this node"),)
    evidence += at_stack(case, waiting[0])
    said = f"Ranks {format_ranks(waiting)} wait in init_process_group; rank {format_ranks(case.blame.culprits)} is not there."
    return Hypothesis(INIT_MISSING, 0.88, said, evidence)
