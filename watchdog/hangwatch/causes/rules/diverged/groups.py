"""Process groups: used in different orders, created on some ranks only, or point-to-point calls that do not pair."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.call_sites import is_new_place
from hangwatch.analysis.divergence.find import fork_of
from hangwatch.analysis.operations.signatures import signature
from hangwatch.analysis.places import call_site
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import at_call, at_fork, at_recorder, at_stack
from hangwatch.causes.match import Level, Match
from hangwatch.model.collectives import Operation
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Frame
from hangwatch.model.text import format_ranks, number_ranks, ranks_do

#: Libraries that send and receive by a schedule of their own. Megatron-LM and NeMo have theirs in ``pipeline_parallel``.
_SCHEDULES = ("torch/distributed/pipelining/", "deepspeed/runtime/pipe/", "/pipeline_parallel/")
_P2P_CALL = re.compile(r"\bi?(?:send|recv)\w*\(|isend_irecv|_p2p\b|p2p_|_recvs?\b|_sends?\b")


def _fronts(case: Case, ranks: tuple[int, ...]) -> dict[int, Operation]:
    return {r: o for r in ranks if r in case.views and (o := case.views[r].frontier) is not None and not o.p2p}


def inversion(case: Case) -> Match | None:
    """Return a match for a cycle over two groups or more whose ranks came there by the same code in another order."""
    if case.blame.shape != "cycle":
        return None
    fronts = _fronts(case, case.blame.component)
    pair = _first_crossed(case, fronts)
    if pair is None or _omission(case, pair, fronts) is not None:
        return None  # one has left out an operation: it is no matter of order
    one, other = pair
    fork = fork_of(case, one, other)
    places = {_place(case, r, front) for r, front in fronts.items()}
    branched = fork is not None and (fork.opposite or fork.ranked)
    begun_again = case.loop is not None and case.loop.begun_again  # it has left something out, whatever the order
    level: Level
    if len(places) == 1 and None not in places and not branched:
        level = "strong"  # the same line of code, in another group on each rank
    elif fork is None or fork.difference is not None:
        level = "possible"  # they were out of step in one of the groups before
    elif fork.opposite:
        # The two orders are the two branches of one `if`, if the other group is one that both sides use.
        level = "strong" if _both_used(case, one, other, fronts) else "likely"
    elif fork.relation == "branch" and fork.only in case.blame.waiting and fork.sure:
        level = "possible"  # the culprits have gone past a branch that the others are in, whatever the order
    elif any(is_new_place(case, r, _path(case, r, fronts[r]), depth=1) for r in (one, other)):
        level = "possible"  # no collective was called from this place before, so there was no order
    elif fork.relation in {"order", "same"} or (_both_usual(case, one, other, fronts) and not begun_again):
        level = "strong"
    else:
        level = "possible"  # one side has gone another way: it is no matter of order
    first = {
        o.group.key: r for r, o in sorted(fronts.items(), reverse=True)
    }  # one rank of each group is enough, even of a thousand
    evidence = tuple(
        Evidence(
            r,
            "flight recorder",
            (
                f"is in {fronts[r].op} of {fronts[r].group.label} (sequence number {fronts[r].seq}, ranks "
                f"{format_ranks(fronts[r].group.ranks)})"
            ),
        )
        for r in sorted(first.values())
    )
    evidence += tuple(e for r in (one, other) for e in at_stack(case, r))
    said = (
        f"Rank {one} uses {fronts[one].group.label} first, rank {other} uses "
        f"{fronts[other].group.label} first. Each waits in one group for a rank that waits in the "
        "other."
    )
    return Match("group-order-inversion", level, said, evidence)


def left_out(case: Case) -> Match | None:
    """Return a match if two hosts ran ahead to one line, and one has left out the operation that the other waits in.

    The other has called both that operation and the one that the first waits in.
    """
    fronts = _fronts(case, case.blame.component) if case.blame.shape == "cycle" else {}
    pair = _first_crossed(case, fronts)
    omission = _omission(case, pair, fronts) if pair is not None else None
    if omission is None:
        return None
    one, other = omission
    front, own = fronts[other], fronts[one]
    said = (
        f"Rank {one} reached the same line as rank {other} without {front.op} of {front.group.label} "
        f"(sequence number {front.seq}), which rank {other} called before its {own.op} of "
        f"{own.group.label}."
    )
    return Match("ranks-diverged", "strong", said, at_recorder(case, (one, other)) + at_stack(case, one), one)


def _omission(case: Case, pair: tuple[int, int], fronts: Mapping[int, Operation]) -> tuple[int, int] | None:
    """Return the one of two ranks that has left out what the other waits in, and the other; None if neither has."""
    one, other = pair
    return next((p for p in ((one, other), (other, one)) if _has_left_out(case, *p, fronts)), None)


def _has_left_out(case: Case, one: int, other: int, fronts: Mapping[int, Operation]) -> bool:
    """True if ``one`` has not called what ``other`` waits in, though ``other`` has called both and is no further."""
    ahead = case.ran_ahead(one) and case.ran_ahead(other)
    places = {call_site(case.views[rank].frames) for rank in (one, other)}
    own = fronts[one]
    called = any(
        o.group.key == own.group.key and o.seq == own.seq and signature(o) == signature(own)
        for o in case.views[other].pending
    )
    key = fronts[other].group.key
    absent = one not in case.history.at(key, fronts[other].seq) and case.history.enqueued(one, key) is not None
    return ahead and len(places) == 1 and None not in places and called and absent


def _place(case: Case, rank: int, front: Operation) -> tuple[str, int] | None:
    """Return from where a rank called what it waits in; its stack does not tell if the host has gone on from there."""
    return call_site(_path(case, rank, front))


def _path(case: Case, rank: int, front: Operation) -> Sequence[Frame]:
    return (front.frames or ()) if case.ran_ahead(rank) else case.views[rank].frames


def _both_used(case: Case, one: int, other: int, fronts: dict[int, Operation]) -> bool:
    """True if both ranks have completed an operation in both groups."""
    keys = {fronts[one].group.key, fronts[other].group.key}
    return all(keys <= {o.group.key for o in case.history.of(rank) if o.completed} for rank in (one, other))


def _both_usual(case: Case, one: int, other: int, fronts: dict[int, Operation]) -> bool:
    """True if each rank has been at the very line that the other is in now.

    Then only the order of the two lines differs, and not who comes to them.
    """

    def visited(rank: int, frames: Sequence[Frame] | None) -> bool:
        flight = case.views[rank].capture.flight
        here = call_site(frames) if frames else None
        done = [o for o in flight.operations if o.completed] if flight is not None else []
        return here is not None and any(call_site(o.frames) == here for o in done if o.frames)

    return visited(one, fronts[other].frames) and visited(other, fronts[one].frames)


def _first_crossed(case: Case, fronts: dict[int, Operation]) -> tuple[int, int] | None:
    """Return the first two ranks in different groups of which one waits for the other, in a group that holds both.

    A culprit is one of them wherever there is such a pair.
    """
    culprits = set(case.blame.culprits)

    def first(ranks: Sequence[int]) -> int:
        return next((rank for rank in ranks if rank in culprits), ranks[0])

    crossed: list[tuple[int, int]] = []
    for edge in case.graph.edges:
        waiters = [r for r in edge.waiters if r in fronts]
        if not waiters:
            continue
        group = fronts[waiters[0]].group  # an edge's waiters are in one operation
        members = frozenset(group.ranks)
        awaited = [r for r in edge.awaited if r in fronts and r in members and fronts[r].group.key != group.key]
        if awaited:
            one, other = first(waiters), first(awaited)
            crossed.append((min(one, other), max(one, other)))
    return min(crossed, key=lambda pair: (culprits.isdisjoint(pair), pair), default=None)


def creation(case: Case) -> Match | None:
    """Return a match if some ranks are inside ``new_group``, and the others are in something else or in another creation."""
    inside = [r for r, v in case.views.items() if v.wait is not None and v.wait.kind == "group_creation"]
    within = frozenset(inside)
    outside = [r for r in case.views if r not in within and _waits(case, r)]
    apart = [e for e in case.graph.edges if e.reason == "creation"]
    if inside and not outside and (apart or len({_creates(case.views[r]) for r in inside}) > 1):
        return _creation_apart(case, inside)
    if apart and set(case.blame.component) <= set(inside):
        return _creation_apart(case, list(case.blame.component))  # the ranks outside wait for them
    if not inside or not outside or case.blame.shape == "nothing":
        return None
    fork = (case.paths.fork if case.paths is not None else None) or fork_of(case, inside[0], outside[0])
    evidence = tuple(e for r in (inside[0], outside[0]) for e in at_stack(case, r, _wait_frame(case, r)))
    if fork is not None and fork.relation in {"branch", "loop"}:
        evidence += at_fork(case, fork)
    members = {r for v in inside if (wait := case.views[v].wait) is not None for r in wait.peers}
    absent = [r for r in outside if r in members] or outside
    takes = f"its members ({format_ranks(sorted(members))})" if members else "every rank"
    who = ranks_do(inside, "creates", "create").capitalize()
    said = f"{who} a process group, which needs {takes}; {number_ranks(absent)} went on to something else."
    return Match("group-creation-mismatch", "strong", said, evidence)


def _creation_apart(case: Case, inside: list[int]) -> Match:
    """Return a match for ranks that are all inside ``new_group``, of different groups: some skipped or added one before."""
    by_call: dict[str, list[int]] = {}
    for rank in inside:
        by_call.setdefault(_creates(case.views[rank]), []).append(rank)
    evidence = tuple(
        Evidence(ranks[0], "stack", f"{number_ranks(ranks)}: {what}") for what, ranks in list(by_call.items())[:4]
    )
    evidence += tuple(e for r in inside[:2] for e in at_stack(case, r, _wait_frame(case, r)))
    who = "All ranks are" if len(inside) == len(case.views) else ranks_do(inside, "is", "are").capitalize()
    said = f"{who} creating a process group, but not the same one: some ranks created one earlier that others did not."
    return Match("group-creation-mismatch", "strong", said, evidence)


def _creates(view: RankView) -> str:
    wait = view.wait
    name = f" named {wait.group[:12]}" if wait is not None and wait.group else ""
    if wait is not None and wait.peers:
        return f"is creating the group of ranks {format_ranks(wait.peers)}{name}"
    if wait is not None and wait.exact and name:
        return f"is creating a group of all ranks{name}"
    return f"is creating its group number {view.capture.groups_created}"


def _wait_frame(case: Case, rank: int) -> Frame | None:
    wait = case.views[rank].wait
    return wait.frame if wait is not None else None


def in_point_to_point(view: RankView) -> bool:
    """True if a rank waits for the other end of a send or receive, perhaps through a handle or a pipeline's schedule."""
    if view.frontier is not None:
        return view.frontier.p2p
    if view.wait is None or view.wait.kind not in {"point_to_point", "work"}:
        return False
    texts = (text for f in view.frames[:4] for text in (f.source or "", *(b.text for b in f.blocks)))
    return view.wait.kind == "point_to_point" or any(_P2P_CALL.search(text) for text in texts)


def in_schedule(view: RankView) -> bool:
    """True if a rank sends or receives by the schedule of a library: the calls there pair by themselves."""
    called = view.frontier.frames if view.frontier is not None else None
    return in_point_to_point(view) and any(part in f.file for f in called or view.frames for part in _SCHEDULES)


def left_schedule(case: Case) -> bool:
    """True if all who wait are in the schedule of a pipeline, and the culprits wait outside of it for all ranks."""
    gone = [view for _, view in case.seen_culprits]
    left = [case.views[r] for r in case.blame.waiting if r in case.views]
    if not left:  # two sides, both to blame
        left = [v for v in gone if in_schedule(v)]
        gone = [v for v in gone if not in_schedule(v)]
    waits = all(v.wait is not None or v.frontier is not None for v in gone)
    outside = waits and not any(in_point_to_point(v) or v.waits_for_no_rank for v in gone)
    return bool(gone) and bool(left) and outside and all(in_schedule(v) for v in left)


def point_to_point(case: Case) -> Match | None:
    """Return a match for a rank in send or recv whose peer waits in something that is not its counterpart."""
    concerned = {*case.blame.culprits, *case.blame.component}
    waits = _waits_for_peers(case)
    if not waits or case.blame.shape == "nothing":
        return None
    own = [e for e in case.graph.edges if not waits.keys().isdisjoint(e.waiters)]
    awaited = {r for e in own for r in e.awaited}
    if not all(_waits(case, r) for r in awaited) or not (awaited or len(waits) == len(concerned)):
        return None
    evidence: tuple[Evidence, ...] = ()
    for rank, (op, peers, recorded) in list(waits.items())[:3]:
        side = {"send": "to", "recv": "from"}.get(op, "with")
        whom = f" {side} rank {format_ranks(peers)}" if peers else ""
        source = "flight recorder" if recorded else "stack"
        evidence += (Evidence(rank, source, f"waits in {op}{whom}"), *at_call(case, rank))
        evidence += at_stack(case, rank, _wait_frame(case, rank))
    both = len(waits) > 1
    ops = {op for op, _, _ in waits.values()}
    # A wait for a rank that itself waits is no fault: the wait for a culprit tells what is wrong.
    facing = [e for e in own if e.reason == "peer"]
    blocked = next((e for e in facing if not set(case.blame.culprits).isdisjoint(e.awaited)), next(iter(facing), None))
    if both and len(ops) == 1:
        said = f"Ranks {format_ranks(waits)} all wait in {ops.pop()}: none of them makes the matching call."
    elif blocked is not None:
        waiter, peer = blocked.waiters[0], blocked.awaited[0]
        op, there = waits[waiter][0], case.place(peer)
        said = f"Rank {waiter} waits in {op} for rank {peer}, which is in {there} instead."
    else:
        said = f"Rank {next(iter(waits))} waits in a send or receive, and no rank is at the other end."
    level: Level = "strong" if both and blocked is not None else "likely"
    return Match("p2p-mismatch", "possible" if left_schedule(case) else level, said, evidence)


def _waits_for_peers(case: Case) -> dict[int, tuple[str, tuple[int, ...], bool]]:
    """Return the ranks that wait in a send or receive: the operation, its peers, and True if only the recorder shows it."""
    waits: dict[int, tuple[str, tuple[int, ...], bool]] = {}
    for rank in sorted({*case.blame.culprits, *case.blame.component}):
        view = case.views.get(rank)
        if view is None or view.waits_for_no_rank or not in_point_to_point(view):
            continue
        if view.wait is not None and view.wait.kind == "point_to_point":
            waits[rank] = (view.wait.op, view.wait.peers, False)
        elif view.frontier is not None and view.frontier.p2p:
            peer = view.frontier.peer
            waits[rank] = (view.frontier.op, (peer,) if peer is not None else (), True)
        else:
            waits[rank] = ("send or receive", (), False)
    return waits


def _waits(case: Case, rank: int) -> bool:
    view = case.views.get(rank)
    return view is not None and not view.waits_for_no_rank and (view.wait is not None or view.frontier is not None)
