"""A rank that is no longer there, or never was: dead, failed, exited early, stopped, not yet joined."""

from __future__ import annotations

import re

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.frames import where
from hangwatch.analysis.places import bare
from hangwatch.analysis.ranks.shutdown import exit_of, shutdown_frame
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.stacks.waits import Wait
from hangwatch.causes.evidence import at_call, at_kernel, at_process, at_stack
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import ExitStatus
from hangwatch.model.text import format_ranks

#: Why it is not there.
DIED = Signature("rank-died", "process-gone", "certain", beats=("init-missing-rank",))
DIED_WITH_TRACEBACK = Signature("rank-died", "gone-with-traceback", "likely")
DIED_AFTER_SUCCESS = Signature("rank-died", "gone-with-status-0", "likely")
DIED_AFTER_LEAVING = Signature("rank-died", "gone-after-its-exit", "likely")
#: Its own traceback says more than where it stands.
RAISED = Signature("rank-raised", "traceback", "certain", beats=("rank-raised", "init-missing-rank"))
#: The status that Python ends with after an exception; ``sys.exit(1)`` ends with it as well.
RAISED_BY_STATUS = Signature("rank-raised", "exited-with-status-1", "certain", beats=("init-missing-rank",))
DIED_WITH_STATUS_1 = Signature("rank-died", "gone-with-status-1", "likely")
#: Files are closed and children are joined at the end of a program; that it came there first is what has to be explained.
EXITED = Signature("early-exit", "exited-with-status-0", "strong", beats=("blocked-io", "child-stall", "uneven-inputs"))
#: The same, where the status was gone before it could be read: what it left the program with may have been an error.
LEFT = Signature("early-exit", "left-without-exception", "strong", beats=("blocked-io", "child-stall", "uneven-inputs"))
#: Why it is not there: the program was over before it came to the first meeting.
EXITED_BEFORE_MEETING = Signature("early-exit", "exited-before-initialization", "certain", beats=("init-missing-rank",))
#: The same, where the status was gone before it could be read.
LEFT_BEFORE_MEETING = Signature("early-exit", "left-before-initialization", "certain", beats=("init-missing-rank",))
#: Files are closed and children are joined at the end of a program; that it came there first is what has to be explained.
IN_SHUTDOWN = Signature("early-exit", "in-shutdown", "strong", beats=("blocked-io", "child-stall", "uneven-inputs"))
IN_SHUTDOWN_WITH_TRACEBACK = Signature("early-exit", "in-shutdown-with-traceback", "likely")
#: Files are closed and children are joined at the end of a program; that it came there first is what has to be explained.
DESTROYING_GROUPS = Signature(
    "early-exit", "destroying-groups", "strong", beats=("blocked-io", "child-stall", "uneven-inputs")
)
#: Most ranks are through, so that those which wait have called more; why they have is not seen.
LEFT_OVER = Signature("rank-conditional-collective", "others-have-ended", "possible")
#: Why it is not there.
STOPPED = Signature("rank-stopped", "stopped", "certain", beats=("init-missing-rank",))
#: Whatever it is in, the others wait in initialization.
INIT_MISSING = Signature("init-missing-rank", "not-in-init", "certain", beats=("blocked-io",))

#: For how many ranks in the same trouble evidence is shown: for the first in full, for the others in a line each.
_SHOWN = 3
_DESTROY = re.compile(r"\bdestroy_process_group\(")
_HOOKS = frozenset({"excepthook", "_excepthook", "print_exception", "handle_exception", "format_exception"})


def _traceback(view: RankView) -> str | None:
    """The last line of the traceback in the rank's log: what was raised."""
    lines = [line.strip() for line in view.capture.log_error if line.strip()]
    return lines[-1] if lines else None


def _exited_with(end: ExitStatus | None, status: int) -> bool:
    """Whether a process has exited by itself, with this status."""
    return end is not None and end.signal is None and end.code == status


def died(case: Case) -> Match | None:
    """The process is gone."""
    for rank in case.blame.culprits:
        view = case.views.get(rank)
        if view is None or not view.gone:
            continue
        end = exit_of(view)
        failed = _traceback(view)
        if _exited_with(end, 0):
            row = DIED_AFTER_SUCCESS
        elif failed is not None and (end is None or end.signal is None):
            row = DIED_WITH_TRACEBACK
        elif end is None and view.capture.ended:
            row = DIED_AFTER_LEAVING
        elif _exited_with(end, 1):
            row = DIED_WITH_STATUS_1
        else:
            row = DIED
        said = f"Rank {rank}'s process has ended; the ranks that wait for it will wait for ever."
        if end is not None and end.oom_killed:
            said = f"The kernel has killed rank {rank}'s process for memory; the ranks that wait for it will wait for ever."
        return Match(row, said, (*at_process(case, rank), *at_kernel(case, rank)))
    return None


def raised(case: Case) -> Match | None:
    """The rank is ending or has ended, and its log or its stack shows an exception."""
    for rank in case.blame.culprits:
        view = case.views.get(rank)
        if view is None:
            continue
        failed = _traceback(view)
        end = exit_of(view)
        hook = next((f for f in view.frames if bare(f) in _HOOKS), None)
        last = shutdown_frame(view.frames)
        clean = _exited_with(end, 0)
        killed = end is not None and end.signal is not None
        if view.gone and failed is None and _exited_with(end, 1):
            said = (
                f"Rank {rank} has exited with status 1, as Python does after an exception; its traceback was not found."
            )
            return Match(RAISED_BY_STATUS, said, at_process(case, rank))
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
        return Match(RAISED, said, evidence)
    return None


def early_exit(case: Case) -> Match | None:
    """The main thread is in the interpreter's shutdown, or has left it or exited with 0, and nothing shows an exception."""
    for rank in case.blame.culprits:
        view = case.views.get(rank)
        if view is None:
            continue
        end = exit_of(view)
        last = shutdown_frame(view.frames)
        meeting = bool(_initializing(case))
        others_do = (
            "before it came to init_process_group, where the others wait" if meeting else "while the others still train"
        )
        if view.gone and _exited_with(end, 0):
            said = f"Rank {rank} has exited with status 0 {others_do}."
            return Match(EXITED_BEFORE_MEETING if meeting else EXITED, said, at_process(case, rank))
        if view.gone and end is None and view.capture.ended and _traceback(view) is None:
            said = f"Rank {rank} has left its program by itself, without an exception, {others_do}."
            left = Evidence(rank, "process", "ran its exit handlers: no exception and no signal has ended it")
            row = LEFT_BEFORE_MEETING if meeting else LEFT
            return Match(row, said, (*at_process(case, rank), left))
        if last is not None:
            others = [t for t in view.side_threads if t.frames]
            evidence: tuple[Evidence, ...] = (Evidence(rank, "stack", where(last)),)
            evidence += tuple(
                Evidence(rank, "stack", f"thread {t.label} keeps it alive, in {where(t.frames[0])}") for t in others[:3]
            )
            said = f"Rank {rank}'s main thread has left the program and is in the interpreter's shutdown."
            return Match(IN_SHUTDOWN if _traceback(view) is None else IN_SHUTDOWN_WITH_TRACEBACK, said, evidence)
        # A group's destructor runs when the function's own frame has gone: the program's line is all there is then.
        first = view.frames[0] if view.frames else None
        destroying = first if first is not None and _DESTROY.search(first.source or "") else None
        if view.wait is not None and view.wait.op == "destroy_process_group":
            destroying = view.wait.frame
        if destroying is not None:
            said = f"Rank {rank} is at the end, in destroy_process_group, while the others still train."
            return Match(DESTROYING_GROUPS, said, at_stack(case, rank, destroying))
    return None


def left_over(case: Case) -> Match | None:
    """The culprits wait in a group of which most have ended in good order."""
    if case.blame.shape != "left_over":
        return None
    rank = case.blame.culprits[0]
    ended = sorted({r for e in case.graph.edges if e.reason == "gone" and rank in e.waiters for r in e.awaited})
    evidence = (*at_call(case, rank), *at_stack(case, rank), *(e for r in ended[:_SHOWN] for e in at_process(case, r)))
    said = f"Rank {rank} is in a collective that ranks {format_ranks(ended)} have not called: they have ended without an error."
    return Match(LEFT_OVER, said, evidence)


def stopped(case: Case) -> Match | None:
    """State T or t, or a frozen cgroup."""
    ranks = [r for r in case.blame.culprits if r in case.views and case.views[r].motion.state == "stopped"]
    if not ranks:
        return None
    evidence = (*at_process(case, ranks[0]), *at_stack(case, ranks[0]))
    evidence += tuple(e for r in ranks[1:_SHOWN] for e in at_process(case, r))
    traced = any(case.views[r].capture.processes[-1].state == "t" for r in ranks)
    how = "is held by a tracer (a debugger attached to it)" if traced else "is stopped and runs no instruction"
    return Match(STOPPED, f"Rank {format_ranks(ranks)} {how}.", evidence)


def _initializing(case: Case) -> dict[int, Wait]:
    """The waits of those who wait, where all of them do so in initialization; else none."""
    waits = {r: w for r in case.blame.waiting if (w := case.views[r].wait) is not None and w.kind == "initialization"}
    return waits if len(waits) == len(case.blame.waiting) else {}


def init_missing(case: Case) -> Match | None:
    """Those who wait do so in initialization, and the culprits are not in it."""
    waits = _initializing(case)
    if not waits or not case.blame.culprits:
        return None
    evidence: tuple[Evidence, ...] = ()
    for number, rank in enumerate(case.blame.culprits[:_SHOWN]):
        if rank in case.views:
            evidence += (*at_stack(case, rank), *at_process(case, rank)) if number == 0 else at_stack(case, rank)[-1:]
        else:
            evidence += (Evidence(rank, "process", "no process of this rank was found on this node"),)
    waiting = sorted(waits)
    announced = next(((r, w) for r, w in sorted(waits.items()) if w.world_size is not None), None)
    if announced is not None:
        rank, wait = announced
        evidence += (
            Evidence(rank, "stack", f"a world of {wait.world_size} ranks was announced to {where(wait.frame)}"),
        )
    evidence += at_stack(case, waiting[0])
    who = f"Rank {format_ranks(waiting)} waits" if len(waiting) == 1 else f"Ranks {format_ranks(waiting)} wait"
    said = f"{who} in init_process_group; rank {format_ranks(case.blame.culprits)} is not there."
    ports = {r: v.meets_at for r in (waiting[0], case.blame.culprits[0]) if (v := case.views.get(r))}
    if len(set(ports.values())) > 1 and None not in ports.values():
        evidence += tuple(Evidence(r, "process", f"meets the others at port {port}") for r, port in ports.items())
        said = f"{said[:-1]}: it meets the others at another port."
    started = case.capture.job.world_size
    if announced is not None and started is not None and (announced[1].world_size or 0) > started:
        said = f"{said[:-1]}: {announced[1].world_size} ranks were announced, and the launcher started {started}."
    return Match(INIT_MISSING, said, evidence)
