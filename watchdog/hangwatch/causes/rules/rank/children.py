"""A rank whose main thread waits for a child process: a forked one that can never go on, or one that does not answer."""

from __future__ import annotations

import re
import signal

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import bare, called_by_user, calls, is_interpreter
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import at_process, at_stack, stuck_culprits
from hangwatch.causes.match import Match
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import ChildProcess, ProcessSample
from hangwatch.model.stacks import Frame

#: Locks and queues of these modules are shared between processes: another one may yet serve one that waits.
_SHARED = re.compile(
    r"\((?:.*/)?(?:multiprocessing|multiprocess|billiard)/(?:queues|synchronize|connection|managers|pool|heap|sharedctypes)\.py:"
)
_RESTS = re.compile(rf"{_SHARED.pattern}|\((?:threading|queue|selectors)\.py:|\(concurrent/futures/")
_HELPERS = re.compile(r"\((?:.*/)?multiprocessing/(?:resource_tracker|forkserver)\.py:")
_TAKES_LOCK = re.compile(r"\.acquire\(|: (?:async )?with\s+\w[\w.]*\s*(?:\(|:|,| as )|^\S*\bacquire \(logging/")
_CONNECTION = "multiprocessing/connection.py"
SYNCHRONIZED = "multiprocessing/synchronize.py"
_WAITS = {
    "subprocess.py": ("wait", "_wait", "communicate", "_communicate", "_try_wait", "run", "call", "check_call", "check_output"),
    "multiprocessing/popen_": ("wait", "poll", "_launch"),
    "multiprocessing/process.py": ("join",),
    "multiprocessing/pool.py": ("wait", "get", "next", "join"),
    _CONNECTION: ("wait", "poll", "_recv", "recv", "recv_bytes"),
    "multiprocessing/queues.py": ("get",),
    SYNCHRONIZED: ("wait", "wait_for"),
    "torch/multiprocessing/spawn.py": ("join",),
}  # fmt: skip
POOLS = ("multiprocessing/pool.py", "concurrent/futures/process.py")


def fork_deadlock(case: Case) -> Match | None:
    """Return a match if a forked child sleeps on a futex, and no thread of its own is there to wake it.

    It waits for a lock that another thread of the parent had, or for a thread of a pool, such as OpenMP's.
    """
    for rank, view in stuck_culprits(case):
        for child in children_of(view):
            if not _forked_into_lock(view, child):
                continue
            place = child.stack[0]
            said = (
                f"Child {child.pid} of rank {rank} was forked and waits in {place}. The thread that "
                "it waits for exists in the parent only, so nothing can ever wake it."
            )
            evidence = (
                *(Evidence(rank, "child process", f"{child.pid} is in {line}") for line in child.stack[:3]),
                Evidence(rank, "child process", _describe(child)),
                *at_stack(case, rank),
                *at_process(case, rank),
            )
            return Match("fork-deadlock", "certain", said, evidence)
    return None


def _forked_into_lock(view: RankView, child: ChildProcess) -> bool:
    """True if a child waits for a lock that no thread can release."""
    if not (child.forked and child.stack and child.state == "S" and "futex" in (child.wait_channel or "")):
        return False
    if _moved(view, child) or _SHARED.search(child.stack[0]):
        return False
    # The mutex itself may tell that the thread which holds it does not exist here.
    if child.threads == 1 or any(not wait.owner_name for wait in child.mutexes):
        return True
    # Threads it has started itself (a queue's feeder) hold no lock of the program while they are idle.
    return bool(_TAKES_LOCK.search(child.stack[0])) and all(_RESTS.search(line) for line in child.side_threads)


def child_stall(case: Case) -> Match | None:
    """Return a match if the main thread is in a wait for a child process, and neither moves."""
    for rank, view in stuck_culprits(case):
        frame = waits_for_child(view) or _at_pipe_of_child(view)
        if frame is None:
            continue
        children = children_of(view)
        if not children and SYNCHRONIZED in frame.file:
            continue  # the other process may be another rank
        evidence = (*at_stack(case, rank, frame), *at_process(case, rank))
        for child in children[:4]:
            place = child.own_line or (child.stack[0] if child.stack else "")
            where = f", in {place}" if place else ""
            evidence += (Evidence(rank, "child process", _describe(child) + where),)
        ended = next((c for c in children if c.state == "Z"), None)
        if ended is not None and _from_children(frame):
            said = (
                f"Rank {rank}'s main thread waits in {bare(frame)} for data from a child process, but "
                f"its child {ended.pid} {_how_ended(ended)}."
            )
            return Match("child-stall", "certain", said, evidence)
        still = [c for c in children if not _moved(view, c)]
        if not children or not still:
            said = f"Rank {rank}'s main thread waits for a child process in {bare(frame)}."
            return Match("child-stall", "likely", said, evidence)
        last = view.capture.processes[-1]
        at_end = [
            c for c in still if c.pid in last.writers or c == last.child_at_pipe or _at_one_connection(frame, last, c)
        ]
        child = (at_end or still)[0]
        named = f"{child.name} (process {child.pid})"
        stays = f"stays in {child.own_line}" if child.own_line is not None else "does not move"
        said = f"Rank {rank}'s {view.who} waits for a child process in {bare(frame)}, but {named} {stays}."
        return Match("child-stall", "certain" if at_end else "strong", said, evidence)
    return None


def _at_one_connection(frame: Frame, last: ProcessSample, child: ChildProcess) -> bool:
    """True if a child waits at a connection of multiprocessing as the rank does, and no other process may be at its other end.

    A ``Pipe`` is a pair of sockets, and a forked child has both.
    """
    connected = _CONNECTION in frame.file and (last.blocked_on or "").startswith("socket:")
    return connected and not (last.other_ends or last.elsewhere) and any(_CONNECTION in at for at in child.stack[:1])


def waits_for_child(view: RankView) -> Frame | None:
    """Return the frame in which the main thread waits for a child, if the stack or the kernel shows it; else None."""
    frames = view.frames
    if not frames or _loads_data(view):
        return None
    above = frames[: next((i for i, f in enumerate(frames) if not is_interpreter(f)), len(frames))]
    for part, functions in _WAITS.items():
        frame = calls(above, part, *functions)
        if frame is not None:
            return frame
    last = view.sample
    if last is not None and (last.syscall in {"wait4", "waitid", "waitpid"} or last.wait_channel == "do_wait"):
        return frames[0]
    managed = any(calls(t.frames, part) is not None for t in view.threads if not t.is_main for part in POOLS)
    future = calls(above, "concurrent/futures/_base.py", "result", "wait", "exception", "as_completed")
    return future if managed else None


def _loads_data(view: RankView) -> bool:
    """True if the children that it waits for are its DataLoader's, a cause of its own. A data set may read from others."""
    return calls(called_by_user(view.frames), "torch/utils/data/dataloader.py") is not None


def _at_pipe_of_child(view: RankView) -> Frame | None:
    """Return the frame in which the main thread is at a pipe whose only other end is a child that does not move; else None."""
    if view.sample is None or not view.frames or view.motion.state == "busy" or _loads_data(view):
        return None
    own = view.sample.child_at_pipe
    return view.frames[0] if own in children_of(view) and not _moved(view, own) else None


def _from_children(frame: Frame) -> bool:
    """True if the wait is one for what other processes send."""
    return any(part in frame.file for part in ("multiprocessing/connection.py", "multiprocessing/queues.py"))


def children_of(view: RankView) -> tuple[ChildProcess, ...]:
    """Return the descendants of a rank without multiprocessing's own helpers, which are idle all the time."""
    children = view.sample.children if view.sample is not None else ()
    return tuple(c for c in children if not any(_HELPERS.search(line) for line in c.stack))


def _moved(view: RankView, child: ChildProcess) -> bool:
    """True if a child has used CPU time since the sample before, or is new."""
    before = view.capture.processes[-2].children if len(view.capture.processes) > 1 else ()
    cpu_s = next((c.cpu_s for c in before if c.pid == child.pid), None)
    return cpu_s is None or child.cpu_s - cpu_s > 0.02


def _how_ended(child: ChildProcess) -> str:
    """Return how a child ended, and where to look for the reason."""
    end = child.exit
    if end is not None and end.signal is not None:
        killer = ", perhaps by the kernel for lack of memory" if end.signal == signal.SIGKILL else ""
        return f"was killed by signal {end.signal}{killer}"
    return "has ended: see its traceback, earlier in the log"


def _describe(child: ChildProcess) -> str:
    threads = f", {child.threads} thread{'s' if child.threads > 1 else ''}" if child.threads else ""
    channel = f", kernel wait channel {child.wait_channel}" if child.wait_channel else ""
    return (
        f"{child.name} (process {child.pid}{', forked' if child.forked else ''}): state {child.state}{threads}{channel}"
    )
