"""Process groups: used in different orders, created on some ranks only, or point-to-point calls that do not pair."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.causes.forks import find_fork, fork_of
from hangwatch.causes.frames import site
from hangwatch.causes.hypothesis import Hypothesis, Knowledge
from hangwatch.causes.observations import at_fork, at_stack
from hangwatch.model.collectives import Operation
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Frame
from hangwatch.model.text import format_ranks

INVERSION = Knowledge(
    id="group-order-inversion",
    title="Two process groups are used in opposite order",
    remedy=(
        "Use the groups in one fixed order on every rank (sort by name, not by data, hash or time of arrival).",
        "If two threads or streams use one group each, use both from one thread.",
    ),
)
CREATION = Knowledge(
    id="group-creation-mismatch",
    title="A process group is being created on some ranks only",
    remedy=(
        "Call new_group(), init_device_mesh() and the like on every rank of the job, in the same order, also on ranks that "
        "will not be members.",
        "With use_local_synchronization=True it is enough that all members call it.",
    ),
)
P2P = Knowledge(
    id="p2p-mismatch",
    title="Send and receive calls that do not pair",
    remedy=(
        "For every recv(src=A) on rank B have a send(dst=B) on rank A, in the same order.",
        "Where both sides send and receive, use batch_isend_irecv() or let one of them send first.",
        "In a pipeline, compare the schedules of the two stages for the micro-batch they are in.",
    ),
)


def _fronts(case: Case, ranks: tuple[int, ...]) -> dict[int, Operation]:
    return {r: o for r in ranks if r in case.views and (o := case.views[r].frontier) is not None and not o.p2p}


def inversion(case: Case) -> Hypothesis | None:
    """A cycle over two groups or more, whose ranks are members of each other's and came there by the same code."""
    if case.blame.shape != "cycle":
        return None
    fronts = _fronts(case, case.blame.component)
    pairs = [
        (a, b)
        for a in fronts
        for b in fronts
        if a < b and fronts[a].group.key != fronts[b].group.key and _crossed(case, a, b, fronts)
    ]
    if len({o.group.key for o in fronts.values()}) < 2 or not pairs:
        return None
    one, other = pairs[0]
    fork = fork_of(case, one, other)
    places = {site(case.views[r].frames) for r in fronts}
    if len(places) == 1 and None not in places:
        confidence = 0.88  # one line of code, in another group on each rank
    elif fork is None:
        confidence = 0.45
    elif fork.opposite:
        confidence = 0.88  # the two orders are the two branches of one `if`
    elif fork.relation in {"order", "same"} or _both_usual(case, one, other, fronts):
        confidence = 0.7
    else:
        confidence = 0.25  # one side has gone another way: it is no matter of order
    evidence = tuple(
        Evidence(
            r,
            "flight recorder",
            f"is in {o.op} number {o.seq} of {o.group.label} (ranks {format_ranks(o.group.ranks)})",
        )
        for r, o in sorted(fronts.items())
    )
    evidence += tuple(e for r in (one, other) for e in at_stack(case, r))
    said = (
        f"Rank {one} uses {fronts[one].group.label} first, rank {other} uses {fronts[other].group.label} first; "
        "each waits in its own for somebody who waits in another."
    )
    return Hypothesis(INVERSION, confidence, said, evidence)


def _both_usual(case: Case, one: int, other: int, fronts: dict[int, Operation]) -> bool:
    """Whether each of the two has been, in the other's group kind, at the very line the other is in now.

    Then neither is in a place the other never comes to, and only the order of the two differs.
    """

    def visited(rank: int, frames: Sequence[Frame] | None) -> bool:
        flight = case.views[rank].capture.flight
        here = site(frames) if frames else None
        done = [o for o in flight.operations if o.completed] if flight is not None else []
        return here is not None and any(site(o.frames) == here for o in done if o.frames)

    return visited(one, fronts[other].frames) and visited(other, fronts[one].frames)


def _crossed(case: Case, a: int, b: int, fronts: dict[int, Operation]) -> bool:
    """Whether one of the two waits for the other, in a group that holds both."""
    edges = {(e.waiter, e.awaited) for e in case.graph.edges}
    held = [fronts[w] for w, m in ((a, b), (b, a)) if (w, m) in edges and m in fronts[w].group.ranks]
    return bool(held)


def creation(case: Case) -> Hypothesis | None:
    """Some ranks are inside ``new_group``, the others are in something else and not on their way there."""
    inside = [r for r, v in case.views.items() if v.wait is not None and v.wait.kind == "group_creation"]
    outside = [r for r, v in case.views.items() if r not in inside and v.wait is not None and not v.elsewhere]
    apart = [e for e in case.graph.edges if e.reason == "creation"]
    if apart and not outside:
        return _creation_apart(case, inside)
    if not inside or not outside or case.blame.shape == "nothing":
        return None
    fork = find_fork(case) or fork_of(case, inside[0], outside[0])
    evidence = tuple(e for r in (inside[0], outside[0]) for e in at_stack(case, r, _wait_frame(case, r)))
    if fork is not None and fork.relation in {"branch", "loop"}:
        evidence += at_fork(case, fork)
    said = (
        f"Rank{'s' if len(inside) > 1 else ''} {format_ranks(inside)} create a process group, which takes every rank; "
        f"rank{'s' if len(outside) > 1 else ''} {format_ranks(outside)} went on to something else."
    )
    return Hypothesis(CREATION, 0.88, said, evidence)


def _creation_apart(case: Case, inside: list[int]) -> Hypothesis:
    """All ranks are inside ``new_group``, but not of the same group: some skipped or added one before."""
    counts = {r: case.views[r].capture.groups_created for r in inside}
    evidence = tuple(Evidence(r, "probe", f"is creating its group number {counts[r]}") for r in inside)
    evidence += tuple(e for r in inside[:2] for e in at_stack(case, r, _wait_frame(case, r)))
    said = (
        "Every rank is creating a process group, but not the same one: before it, some created one that others did not."
    )
    return Hypothesis(CREATION, 0.88, said, evidence)


def _wait_frame(case: Case, rank: int) -> Frame | None:
    wait = case.views[rank].wait
    return wait.frame if wait is not None else None


def point_to_point(case: Case) -> Hypothesis | None:
    """A rank that waits in send or recv, for a peer that waits in something that is not its counterpart."""
    concerned = set(case.blame.culprits) | set(case.blame.component)
    waits = {}
    for rank in sorted(concerned):
        view = case.views.get(rank)
        if view is None or view.elsewhere:
            continue
        if view.wait is not None and view.wait.kind == "point_to_point":
            waits[rank] = (view.wait.op, view.wait.peers)
        elif view.frontier is not None and view.frontier.p2p:
            peer = view.frontier.peer
            waits[rank] = (view.frontier.op, (peer,) if peer is not None else ())
    if not waits or case.blame.shape not in {"cycle", "root"}:
        return None
    blocked = [e for e in case.graph.edges if e.waiter in waits and e.reason == "peer" and e.awaited in case.views]
    if not blocked or not all(_waits(case, e.awaited) for e in blocked):
        return None
    evidence: tuple[Evidence, ...] = ()
    for rank, (op, peers) in waits.items():
        whom = f" {'to' if op == 'send' else 'from'} rank {format_ranks(peers)}" if peers else ""
        evidence += (Evidence(rank, "stack", f"waits in {op}{whom}"), *at_stack(case, rank, _wait_frame(case, rank)))
    both = len(waits) > 1
    ops = {op for op, _ in waits.values()}
    if both and len(ops) == 1:
        said = f"Ranks {format_ranks(waits)} all wait in {ops.pop()}: none of them is on the other end."
    else:
        e = blocked[0]
        said = f"Rank {e.waiter} waits in {waits[e.waiter][0]} for rank {e.awaited}, which is in {case.place(e.awaited)} instead."
    return Hypothesis(P2P, 0.88 if both else 0.6, said, evidence)


def _waits(case: Case, rank: int) -> bool:
    view = case.views.get(rank)
    return view is not None and not view.elsewhere and (view.wait is not None or view.frontier is not None)
