"""Process groups: used in different orders, created on some ranks only, or point-to-point calls that do not pair."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.both_sides import calls_it_elsewhere
from hangwatch.analysis.divergence.call_sites import first_difference, is_new_place
from hangwatch.analysis.divergence.find import fork_of
from hangwatch.analysis.divergence.frames import call_site
from hangwatch.analysis.divergence.iterations import is_of_a_step
from hangwatch.analysis.divergence.relate import Fork
from hangwatch.analysis.operations.signatures import signature
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import at_call, at_fork, at_recorder, at_stack
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.collectives import Operation
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Frame
from hangwatch.model.text import format_ranks

#: Both sides call both: only their order differs.
ONE_LINE = Signature("group-order-inversion", "one-line", "strong", beats=("rank-conditional-collective",))
#: Both sides call both: only their order differs.
TWO_BRANCHES = Signature("group-order-inversion", "two-branches", "strong", beats=("rank-conditional-collective",))
#: Both sides call both: only their order differs.
OPPOSITE_ORDER = Signature(
    "group-order-inversion", "opposite-order", "strong", beats=("rank-conditional-collective/expression",)
)
#: The record has it: no order of the two gives this.
LEFT_OUT = Signature("skipped-collective", "left-out-by-the-record", "strong")
#: The iteration goes on: a condition decided of one collective, and not of the step.
LEFT_OUT_BESIDE_THE_STEP = Signature("skipped-collective", "left-out-by-the-record-beside-the-step", "possible")
TWO_BRANCHES_UNUSED = Signature("group-order-inversion", "two-branches-group-unused", "likely")
PATHS_UNKNOWN = Signature("group-order-inversion", "paths-unknown", "possible")
PAST_A_CONDITION = Signature("group-order-inversion", "past-a-condition", "possible")
NEW_PLACE = Signature("group-order-inversion", "new-place", "possible")
OUT_OF_STEP_BEFORE = Signature("group-order-inversion", "out-of-step-before", "possible")
ANOTHER_WAY = Signature("group-order-inversion", "another-way", "possible")
#: What the condition is around.
CREATION = Signature(
    "group-creation-mismatch",
    "some-create",
    "strong",
    beats=(
        "rank-conditional-collective",
        "skipped-collective",
        "uneven-inputs",
        "checkpoint-on-some-ranks/others-in-the-next-round-counted",
    ),
)
#: What the condition is around.
CREATION_APART = Signature(
    "group-creation-mismatch", "different-groups", "strong", beats=("rank-conditional-collective", "skipped-collective")
)
#: Sends and receives are meant to differ by rank; that they do not pair is seen.
BOTH_WAIT = Signature(
    "p2p-mismatch", "both-wait", "strong", beats=("rank-conditional-collective", "skipped-collective", "uneven-inputs")
)
#: Sends and receives are meant to differ by rank; that they do not pair is seen.
NO_COUNTERPART = Signature(
    "p2p-mismatch",
    "no-counterpart",
    "likely",
    beats=("rank-conditional-collective", "skipped-collective", "uneven-inputs"),
)
#: Sends and receives are meant to differ by rank; that they do not pair is seen.
ONE_WAITS = Signature(
    "p2p-mismatch", "one-waits", "likely", beats=("rank-conditional-collective", "skipped-collective", "uneven-inputs")
)
#: The schedule pairs them by itself: what is wrong is that one rank has left it.
SCHEDULE_LEFT = Signature("p2p-mismatch", "schedule-left", "possible", beats=("uneven-inputs", "skipped-collective"))

#: Libraries that send and receive by a schedule of their own. Megatron-LM and NeMo have theirs in ``pipeline_parallel``.
_SCHEDULES = ("torch/distributed/pipelining/", "deepspeed/runtime/pipe/", "/pipeline_parallel/")
_P2P_CALL = re.compile(r"\bi?(?:send|recv)\w*\(|isend_irecv|_p2p\b|p2p_|_recvs?\b|_sends?\b")


def _fronts(case: Case, ranks: tuple[int, ...]) -> dict[int, Operation]:
    return {r: o for r in ranks if r in case.views and (o := case.views[r].frontier) is not None and not o.p2p}


def inversion(case: Case) -> Match | None:
    """A cycle over two groups or more, whose ranks are members of each other's and came there by the same code."""
    if case.blame.shape != "cycle":
        return None
    fronts = _fronts(case, case.blame.component)
    pair = _first_crossed(case, fronts)
    if pair is None or _omission(case, pair, fronts) is not None:
        return None  # what one has left out is in no order
    one, other = pair
    fork = fork_of(case, one, other)
    places = {_place(case, r, front) for r, front in fronts.items()}
    branched = fork is not None and (fork.opposite or fork.ranked)
    begun_again = case.loop is not None and case.loop.begun_again  # it has left something out, whatever comes first
    if len(places) == 1 and None not in places and not branched:
        row = ONE_LINE  # one line of code, in another group on each rank
    elif fork is None:
        row = PATHS_UNKNOWN
    elif first_difference(case, one, other) is not None:
        row = OUT_OF_STEP_BEFORE  # they had been out of step in one of the groups before they came to this
    elif fork.opposite:
        # The two orders are the two branches of one `if`, if the other group is one that both sides use.
        row = TWO_BRANCHES if _both_used(case, one, other, fronts) else TWO_BRANCHES_UNUSED
    elif fork.relation == "branch" and fork.only in case.blame.waiting and (fork.sure or _is_past_guard(fork)):
        row = PAST_A_CONDITION  # the culprits have come past something, in whatever order
    elif calls_it_elsewhere(case, fork):
        row = OPPOSITE_ORDER
    elif any(is_new_place(case, r, _place(case, r, fronts[r])) for r in (one, other)):
        row = NEW_PLACE  # a place that no collective was ever called from has had no order
    elif _has_passed(case, fork):
        row = ANOTHER_WAY  # what the others wait in is behind the culprit, which has not called it there
    elif fork.relation in {"order", "same"} or (_both_usual(case, one, other, fronts) and not begun_again):
        row = OPPOSITE_ORDER
    else:
        row = ANOTHER_WAY  # one side has gone another way: it is no matter of order
    first = {
        o.group.key: r for r, o in sorted(fronts.items(), reverse=True)
    }  # of a thousand ranks, one a group says it
    evidence = tuple(
        Evidence(
            r,
            "flight recorder",
            f"is in {fronts[r].op} number {fronts[r].seq} of {fronts[r].group.label} "
            f"(ranks {format_ranks(fronts[r].group.ranks)})",
        )
        for r in sorted(first.values())
    )
    evidence += tuple(e for r in (one, other) for e in at_stack(case, r))
    said = (
        f"Rank {one} uses {fronts[one].group.label} first, rank {other} uses {fronts[other].group.label} first; "
        "each waits in its own for a rank that waits in another."
    )
    return Match(row, said, evidence)


def left_out(case: Case) -> Match | None:
    """Hosts that run ahead are at one place: one has called what the others wait in and what it waits in, the other one alone."""
    fronts = _fronts(case, case.blame.component) if case.blame.shape == "cycle" else {}
    pair = _first_crossed(case, fronts)
    omission = _omission(case, pair, fronts) if pair is not None else None
    if omission is None:
        return None
    one, other = omission
    front, own = fronts[other], fronts[one]
    said = (
        f"Rank {one} has come to the same place as rank {other} without {front.op} number {front.seq} of "
        f"{front.group.label}, which rank {other} called before its {own.op} of {own.group.label}."
    )
    conditional = case.fork is not None and case.fork.relation == "branch" and case.fork.only == other
    row = LEFT_OUT_BESIDE_THE_STEP if conditional and not is_of_a_step(front.frames or ()) else LEFT_OUT
    return Match(row, said, at_recorder(case, (one, other)) + at_stack(case, one))


def _omission(case: Case, pair: tuple[int, int], fronts: Mapping[int, Operation]) -> tuple[int, int] | None:
    """Of two ranks the one that has left out what the other waits in, and the other; None where neither has."""
    one, other = pair
    return next((p for p in ((one, other), (other, one)) if _has_left_out(case, *p, fronts)), None)


def _has_left_out(case: Case, one: int, other: int, fronts: Mapping[int, Operation]) -> bool:
    """Whether ``one`` has not called what ``other`` waits in, though that has called both and is no further."""
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


def _is_past_guard(fork: Fork) -> bool:
    """Whether one side is further down in one function than the call in which the other has come past a guard."""
    under, past = fork.sides
    guarded = fork.block is not None and fork.block.kind == "guard" and fork.one_function
    return guarded and under.at is not None and past.at is not None and past.at.line > under.at.line


def _has_passed(case: Case, fork: Fork) -> bool:
    """Whether the culprit's line is further down a straight piece of code than the one that the others wait in."""
    culprits = [side for side in (fork.mine, fork.theirs) if side.rank in case.blame.culprits]
    if fork.relation != "order" or len(culprits) != 1:
        return False
    other = fork.theirs if culprits[0] is fork.mine else fork.mine
    here, there = culprits[0].at, other.at
    return here is not None and there is not None and here.line > there.line


def _place(case: Case, rank: int, front: Operation) -> tuple[str, int] | None:
    """From where a rank called what it waits in: where the host has gone on from there, its stack is no answer."""
    return call_site(front.frames or ()) if case.ran_ahead(rank) else call_site(case.views[rank].frames)


def _both_used(case: Case, one: int, other: int, fronts: dict[int, Operation]) -> bool:
    """Whether both ranks have completed an operation in both groups."""
    keys = {fronts[one].group.key, fronts[other].group.key}
    return all(keys <= {o.group.key for o in case.history.of(rank) if o.completed} for rank in (one, other))


def _both_usual(case: Case, one: int, other: int, fronts: dict[int, Operation]) -> bool:
    """Whether each of the two has been, in the other's group kind, at the very line the other is in now.

    Then neither is in a place the other never comes to, and only the order of the two differs.
    """

    def visited(rank: int, frames: Sequence[Frame] | None) -> bool:
        flight = case.views[rank].capture.flight
        here = call_site(frames) if frames else None
        done = [o for o in flight.operations if o.completed] if flight is not None else []
        return here is not None and any(call_site(o.frames) == here for o in done if o.frames)

    return visited(one, fronts[other].frames) and visited(other, fronts[one].frames)


def _first_crossed(case: Case, fronts: dict[int, Operation]) -> tuple[int, int] | None:
    """The first two ranks in different groups of which one waits for the other, in a group that holds both."""
    crossed: list[tuple[int, int]] = []
    for edge in case.graph.edges:
        waiters = [r for r in edge.waiters if r in fronts]
        if not waiters:
            continue
        group = fronts[waiters[0]].group  # an edge's waiters are in one operation
        members = frozenset(group.ranks)
        awaited = [r for r in edge.awaited if r in fronts and r in members and fronts[r].group.key != group.key]
        if awaited:
            crossed.append((min(waiters[0], awaited[0]), max(waiters[0], awaited[0])))
    return min(crossed, default=None)


def creation(case: Case) -> Match | None:
    """Some ranks are inside ``new_group``, the others are in something else and not on their way there."""
    inside = [r for r, v in case.views.items() if v.wait is not None and v.wait.kind == "group_creation"]
    within = frozenset(inside)
    outside = [r for r, v in case.views.items() if r not in within and v.wait is not None and not v.waits_for_no_rank]
    apart = [e for e in case.graph.edges if e.reason == "creation"]
    if inside and not outside and (apart or case.blame.culprits):
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
    who = f"Ranks {format_ranks(inside)} create" if len(inside) > 1 else f"Rank {inside[0]} creates"
    said = (
        f"{who} a process group, which takes {takes}; "
        f"rank{'s' if len(absent) > 1 else ''} {format_ranks(absent)} went on to something else."
    )
    return Match(CREATION, said, evidence)


def _creation_apart(case: Case, inside: list[int]) -> Match:
    """All ranks are inside ``new_group``, but not of the same group: some skipped or added one before."""
    by_call: dict[str, list[int]] = {}
    for rank in inside:
        by_call.setdefault(_creates(case.views[rank]), []).append(rank)
    evidence = tuple(
        Evidence(ranks[0], "stack", f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}: {what}")
        for what, ranks in list(by_call.items())[:4]
    )
    evidence += tuple(e for r in inside[:2] for e in at_stack(case, r, _wait_frame(case, r)))
    who = "Every rank is" if len(inside) == len(case.views) else f"Ranks {format_ranks(inside)} are"
    said = f"{who} creating a process group, but not the same one: before it, some created one that others did not."
    return Match(CREATION_APART, said, evidence)


def _creates(view: RankView) -> str:
    wait = view.wait
    name = f" by the name {wait.group[:12]}" if wait is not None and wait.group else ""
    if wait is not None and wait.peers:
        return f"is creating the group of ranks {format_ranks(wait.peers)}{name}"
    if wait is not None and wait.exact and name:
        return f"is creating a group of every rank{name}"
    return f"is creating its group number {view.capture.groups_created}"


def _wait_frame(case: Case, rank: int) -> Frame | None:
    wait = case.views[rank].wait
    return wait.frame if wait is not None else None


def in_point_to_point(view: RankView) -> bool:
    """Whether a rank waits for the other end of a send or receive, be it through a handle or a pipeline's schedule."""
    if view.frontier is not None:
        return view.frontier.p2p
    if view.wait is None or view.wait.kind not in {"point_to_point", "work"}:
        return False
    texts = (text for f in view.frames[:4] for text in (f.source or "", *(b.text for b in f.blocks)))
    return view.wait.kind == "point_to_point" or any(_P2P_CALL.search(text) for text in texts)


def in_schedule(view: RankView) -> bool:
    """Whether a rank sends or receives by the schedule of a library: the calls there pair by themselves."""
    called = view.frontier.frames if view.frontier is not None else None
    return in_point_to_point(view) and any(part in f.file for f in called or view.frames for part in _SCHEDULES)


def left_schedule(case: Case) -> bool:
    """Whether all who wait are in the schedule of a pipeline, and the culprits wait outside of it for all ranks."""
    gone = [case.views[r] for r in case.blame.culprits if r in case.views]
    left = [case.views[r] for r in case.blame.waiting if r in case.views]
    if not left:  # one against one, who are both to blame
        left = [v for v in gone if in_schedule(v)]
        gone = [v for v in gone if not in_schedule(v)]
    waits = all(v.wait is not None or v.frontier is not None for v in gone)
    outside = waits and not any(in_point_to_point(v) or v.waits_for_no_rank for v in gone)
    return bool(gone) and bool(left) and outside and all(in_schedule(v) for v in left)


def point_to_point(case: Case) -> Match | None:
    """A rank that waits in send or recv, for a peer that waits in something that is not its counterpart."""
    concerned = sorted(set(case.blame.culprits) | set(case.blame.component))
    waits, recorded = {}, set()
    for rank in concerned:
        view = case.views.get(rank)
        if view is None or view.waits_for_no_rank or not in_point_to_point(view):
            continue
        if view.wait is not None and view.wait.kind == "point_to_point":
            waits[rank] = (view.wait.op, view.wait.peers)
        elif view.frontier is not None and view.frontier.p2p:
            peer = view.frontier.peer
            recorded.add(rank)
            waits[rank] = (view.frontier.op, (peer,) if peer is not None else ())
        else:
            waits[rank] = ("send or receive", ())
    if not waits or case.blame.shape == "nothing":
        return None
    own = [e for e in case.graph.edges if not waits.keys().isdisjoint(e.waiters)]
    awaited = {r for e in own for r in e.awaited}
    if not all(_waits(case, r) for r in awaited) or not (awaited or len(waits) == len(concerned)):
        return None
    evidence: tuple[Evidence, ...] = ()
    for rank, (op, peers) in list(waits.items())[:3]:
        side = {"send": "to", "recv": "from"}.get(op, "with")
        whom = f" {side} rank {format_ranks(peers)}" if peers else ""
        source = "flight recorder" if rank in recorded else "stack"
        evidence += (Evidence(rank, source, f"waits in {op}{whom}"), *at_call(case, rank))
        evidence += at_stack(case, rank, _wait_frame(case, rank))
    both = len(waits) > 1
    ops = {op for op, _ in waits.values()}
    # Between two that wait in a chain nothing is wrong: the one who awaits a culprit tells what is.
    facing = [e for e in own if e.reason == "peer"]
    blocked = next((e for e in facing if not set(case.blame.culprits).isdisjoint(e.awaited)), next(iter(facing), None))
    if both and len(ops) == 1:
        said = f"Ranks {format_ranks(waits)} all wait in {ops.pop()}: none of them is on the other end."
    elif blocked is not None:
        waiter, peer = blocked.waiters[0], blocked.awaited[0]
        op, there = waits[waiter][0], case.place(peer)
        said = f"Rank {waiter} waits in {op} for rank {peer}, which is in {there} instead."
    else:
        said = f"Rank {next(iter(waits))} waits for the other end of a send or receive, and no rank is there."
    if left_schedule(case):
        return Match(SCHEDULE_LEFT, said, evidence)
    if blocked is None:
        return Match(NO_COUNTERPART, said, evidence)
    return Match(BOTH_WAIT if both else ONE_WAITS, said, evidence)


def _waits(case: Case, rank: int) -> bool:
    view = case.views.get(rank)
    return view is not None and not view.waits_for_no_rank and (view.wait is not None or view.frontier is not None)
