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
from hangwatch.causes.match import Match
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import ExitStatus
from hangwatch.model.text import number_ranks, ranks_do, short_path

#: How many ranks in the same trouble are shown: the first in full, the others in a line each.
_SHOWN = 3
_DESTROY = re.compile(r"\bdestroy_process_group\(")
_HOOKS = frozenset({"excepthook", "_excepthook", "print_exception", "handle_exception", "format_exception"})


def _traceback(view: RankView) -> str | None:
    """Return the last line of the traceback in the rank's log, which says what was raised; None without a traceback."""
    lines = [line.strip() for line in view.capture.log_error if line.strip()]
    return lines[-1] if lines else None


def _shorten(place: str) -> str:
    """Return ``read (/home/u/train/data.py:27)``, as the probe writes it, with a short path."""
    function, bracket, file = place.strip().partition(" (")
    return f"{function}{bracket}{short_path(file)}"


def _exited_with(end: ExitStatus | None, status: int) -> bool:
    """True if a process has exited by itself, with this status."""
    return end is not None and end.signal is None and end.code == status


def died(case: Case) -> Match | None:
    """Return a match if a culprit's process is gone."""
    for rank in case.blame.culprits:
        view = case.views.get(rank)
        if view is None or not view.gone:
            continue
        end = exit_of(view)
        failed = _traceback(view)
        # It may have ended by itself, in good order or by an exception.
        by_itself = _exited_with(end, 0) or _exited_with(end, 1) or (end is None and view.capture.ended)
        by_itself = by_itself or (failed is not None and (end is None or end.signal is None))
        said = f"Rank {rank}'s process has ended. The ranks that wait for it will wait forever."
        if end is not None and end.oom_killed:
            said = (
                f"The kernel's out-of-memory killer ended rank {rank}'s process. The ranks that wait for "
                "it will wait forever."
            )
        return Match(
            "rank-died", "likely" if by_itself else "certain", said, (*at_process(case, rank), *at_kernel(case, rank))
        )
    return None


def raised(case: Case) -> Match | None:
    """Return a match if the rank is ending or has ended, and its log or its stack shows an exception."""
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
            said = f"Rank {rank} exited with status 1, as Python does after an exception. No traceback was found."
            return Match("rank-raised", "certain", said, at_process(case, rank))
        if hook is None and (failed is None or clean or killed or not (view.gone or last is not None)):
            continue
        shown_lines = view.capture.log_error[-2:] if failed else ()
        evidence = tuple(Evidence(rank, "exception", line.strip()) for line in shown_lines)
        shown = hook or last
        evidence += (Evidence(rank, "stack", where(shown)),) if shown else at_process(case, rank)
        raised_in = f" in {_shorten(shown_lines[0])}" if len(shown_lines) == 2 else ""
        said = (
            f"Rank {rank} failed"
            + (f"{raised_in} with {failed}" if failed else "")
            + (", but its process still exists." if not view.gone else ".")
        )
        return Match("rank-raised", "certain", said, evidence, rank)
    return None


def early_exit(case: Case) -> Match | None:
    """Return a match if the rank is in the interpreter's shutdown or has exited with 0, and nothing shows an exception."""
    for rank in case.blame.culprits:
        view = case.views.get(rank)
        if view is None:
            continue
        end = exit_of(view)
        last = shutdown_frame(view.frames)
        meeting = bool(_initializing(case))
        others_do = (
            "before it reached init_process_group, where the others wait" if meeting else "while the others still train"
        )
        if view.gone and _exited_with(end, 0):
            said = f"Rank {rank} exited with status 0 {others_do}."
            return Match("early-exit", "certain" if meeting else "strong", said, at_process(case, rank))
        if view.gone and end is None and view.capture.ended and _traceback(view) is None:
            said = f"Rank {rank} ended its program without an exception {others_do}."
            left = Evidence(rank, "process", "ran its exit handlers: no exception and no signal ended it")
            shown = (*at_process(case, rank), left)
            return Match("early-exit", "certain" if meeting else "strong", said, shown)
        if last is not None:
            others = [t for t in view.side_threads if t.frames]
            evidence: tuple[Evidence, ...] = (Evidence(rank, "stack", where(last)),)
            evidence += tuple(
                Evidence(rank, "stack", f"thread {t.label} keeps it alive, in {where(t.frames[0])}") for t in others[:3]
            )
            said = f"Rank {rank}'s main thread has finished the program and is in the interpreter's shutdown."
            return Match("early-exit", "strong" if _traceback(view) is None else "likely", said, evidence)
        # A group's destructor runs after the function's own frame is gone: only the program's line shows it.
        first = view.frames[0] if view.frames else None
        destroying = first if first is not None and _DESTROY.search(first.source or "") else None
        if view.wait is not None and view.wait.op == "destroy_process_group":
            destroying = view.wait.frame
        if destroying is not None:
            said = f"Rank {rank} is at the end of the program, in destroy_process_group, while the others still train."
            return Match("early-exit", "strong", said, at_stack(case, rank, destroying))
    return None


def left_over(case: Case) -> Match | None:
    """Return a match if the culprits wait in a group of which most have ended in good order."""
    if case.blame.shape != "left_over":
        return None
    rank = case.blame.culprits[0]
    ended = sorted({r for e in case.graph.edges if e.reason == "gone" and rank in e.waiters for r in e.awaited})
    evidence = (*at_call(case, rank), *at_stack(case, rank), *(e for r in ended[:_SHOWN] for e in at_process(case, r)))
    said = f"Rank {rank} is in a collective that {number_ranks(ended)} did not call before they ended without an error."
    return Match("ranks-diverged", "possible", said, evidence)


def stopped(case: Case) -> Match | None:
    """Return a match for culprits in state T or t, or in a frozen cgroup."""
    ranks = [r for r in case.blame.culprits if r in case.views and case.views[r].motion.state == "stopped"]
    if not ranks:
        return None
    evidence = (*at_process(case, ranks[0]), *at_stack(case, ranks[0]))
    evidence += tuple(e for r in ranks[1:_SHOWN] for e in at_process(case, r))
    traced = any(case.views[r].capture.processes[-1].state == "t" for r in ranks)
    how = "held by a tracer, such as an attached debugger" if traced else "stopped and cannot run"
    return Match("rank-stopped", "certain", f"{ranks_do(ranks, 'is', 'are').capitalize()} {how}.", evidence)


def _initializing(case: Case) -> dict[int, Wait]:
    """Return the waits of the waiting ranks by rank, if all of them are in initialization; else none."""
    waits = {r: w for r in case.blame.waiting if (w := case.views[r].wait) is not None and w.kind == "initialization"}
    return waits if len(waits) == len(case.blame.waiting) else {}


def init_missing(case: Case) -> Match | None:
    """Return a match if all waiting ranks are in initialization, and the culprits are not."""
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
        evidence += (Evidence(rank, "stack", f"{wait.world_size} ranks were announced to {where(wait.frame)}"),)
    evidence += at_stack(case, waiting[0])
    who = ranks_do(waiting, "waits", "wait").capitalize()
    said = f"{who} in init_process_group; {ranks_do(case.blame.culprits, 'is', 'are')} not there."
    ports = {r: v.meets_at for r in (waiting[0], case.blame.culprits[0]) if (v := case.views.get(r))}
    if len(set(ports.values())) > 1 and None not in ports.values():
        evidence += tuple(Evidence(r, "process", f"uses port {port} to meet the others") for r, port in ports.items())
        said = f"{said[:-1]}: the two use different ports."
    started = case.capture.job.world_size
    if announced is not None and started is not None and (announced[1].world_size or 0) > started:
        said = f"{said[:-1]}: {announced[1].world_size} ranks were announced, but the launcher started {started}."
    return Match("init-missing-rank", "certain", said, evidence)
