"""A rank that is no longer there, or never was: dead, failed, exited early, stopped, not yet joined, on a silent node."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import bare, where
from hangwatch.analysis.ranks.shutdown import exit_of, shutdown_frame
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.stacks.waits import Wait
from hangwatch.causes.evidence import at_call, at_front, at_kernel, at_process, at_stack
from hangwatch.causes.match import Match
from hangwatch.model.capture import SilentNode
from hangwatch.model.incident import Evidence
from hangwatch.model.numbers import world_of
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
    for rank, view in case.seen_culprits:
        if not view.gone:
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
    for rank, view in case.seen_culprits:
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
    meeting = bool(_initializing(case))
    others_do = (
        "before it reached init_process_group, where the others wait" if meeting else "while the others still train"
    )
    for rank, view in case.seen_culprits:
        end = exit_of(view)
        last = shutdown_frame(view.frames)
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
            said = (
                f"Rank {rank} is in destroy_process_group while the others still train. "
                "An exception that is not printed yet may have brought it there."
            )
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
    ranks = [rank for rank, view in case.seen_culprits if view.motion.state == "stopped"]
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


def store_unreachable(case: Case) -> Match | None:
    """Return a match if ranks still try to connect to the store, while another one is past that, or hosts it."""
    waits = {r: v.wait for r, v in case.views.items() if v.wait is not None and v.wait.kind == "initialization"}
    connecting = [r for r in sorted(waits) if waits[r].connecting]
    waiting = [r for r in sorted(waits) if not waits[r].connecting]
    culprits = set(case.blame.culprits)
    if connecting and not waiting and not culprits and set(case.blame.waiting) <= set(connecting):
        said = "All visible ranks still try to connect to the store where they meet, in init_process_group."
        return Match("store-unreachable", "strong", said, _at_connecting(case, connecting))
    # The culprits are the smaller side: it may host a store at which the others do not look.
    if not connecting or not waiting or not culprits or not (culprits >= set(connecting) or culprits <= set(waiting)):
        return None
    if not culprits <= waits.keys():
        return None
    tries = case.views[connecting[0]].meets_at
    there = case.views[waiting[0]].meets_at
    evidence = _at_connecting(case, connecting)
    if there is not None:
        evidence += (Evidence(waiting[0], "process", f"uses port {there} to meet the others"),)
    evidence += at_front(case, waiting[0])
    who = ranks_do(connecting, "still tries", "still try").capitalize()
    said = f"{who} to connect to the store where the ranks meet, in init_process_group."
    if None not in (tries, there) and tries != there:
        said = f"{said[:-1]}: at port {tries}, while rank {waiting[0]} uses port {there}."
        return Match("store-unreachable", "certain", said, evidence)
    return Match("store-unreachable", "strong", said, evidence)


def _at_connecting(case: Case, ranks: Sequence[int]) -> tuple[Evidence, ...]:
    evidence: tuple[Evidence, ...] = ()
    for rank in ranks[:_SHOWN]:
        evidence += (*at_stack(case, rank), *at_process(case, rank))
        port = case.views[rank].meets_at
        evidence += (Evidence(rank, "stack", f"tries to connect to a store at port {port}"),) if port else ()
    return evidence


def peer_world_lost(case: Case) -> Match | None:
    """Return a match if a culprit is gone, or failed, and only processes of other worlds wait for it."""
    for rank, view in case.seen_culprits:
        last = _traceback(view)
        ending = shutdown_frame(view.frames)
        if not view.gone and (last is None or ending is None):
            continue
        waiters = {w for e in case.graph.edges if rank in e.awaited for w in e.waiters}
        if not waiters or any(world_of(w) == world_of(rank) for w in waiters):
            continue
        words = f" after {last}" if last is not None else ""
        state = "has ended" if view.gone else "has failed"
        said = f"Rank {rank}'s process {state}{words}. Nothing stops the processes of the other job with it."
        evidence = tuple(Evidence(rank, "exception", line.strip()) for line in view.capture.log_error[-2:])
        evidence += (Evidence(rank, "stack", where(ending)),) if ending is not None else at_process(case, rank)
        return Match("peer-world-lost", "certain", said, (*evidence, *at_stack(case, min(waiters))))
    return None


def node_lost(case: Case) -> Match | None:
    """Return a match if all culprits are on nodes of which nothing comes any more."""
    culprits = frozenset(case.blame.culprits)
    nodes = [node for node in case.capture.silent if not culprits.isdisjoint(node.ranks)]
    if not culprits or not culprits.issubset(rank for node in nodes for rank in node.ranks):
        return None
    evidence = tuple(e for node in nodes for e in _at_node(node))
    evidence += tuple(e for rank in case.blame.waiting[:1] for e in at_front(case, rank))
    names = " and ".join(node.node for node in nodes)
    whose = number_ranks({rank for node in nodes for rank in node.ranks})
    said = f"Nothing comes from node {names} any more, not even from its agent, and the others wait for {whose}."
    sure = all(node.answered_before for node in nodes)
    if not sure:
        said += " Whether the host is up is unknown: it never answered before, so a firewall may block the check."
    return Match("node-lost", "certain" if sure else "strong", said, evidence)


def _at_node(node: SilentNode) -> tuple[Evidence, ...]:
    before = "but did while its agent was there" if node.answered_before else "and has never answered"
    return (
        Evidence(None, "peer discovery", f"{node.node}: its agent has been silent for {node.silent_s:.0f} s"),
        Evidence(None, "network", f"{node.node}: its host does not answer at {node.address}, {before}"),
    )
