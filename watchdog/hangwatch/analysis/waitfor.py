"""The wait-for graph: which rank waits for which, and why. Its sinks hold everybody up. Pure.

Ranks that are in one operation wait for the same members for the same reasons, so an edge leads from many to many: the graph
grows with the members of groups, and not with their squares.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hangwatch.analysis.alignment import History
from hangwatch.analysis.signatures import describe, signature
from hangwatch.analysis.sinks import find_sinks
from hangwatch.analysis.views import RankView
from hangwatch.model.collectives import Group, Operation
from hangwatch.model.text import format_ranks

Reason = Literal[
    "absent", "mismatch", "sizes", "queued", "gone", "returning", "silent", "stopped", "unseen", "peer", "elsewhere",
    "creation", "possible",
]  # fmt: skip


@dataclass(frozen=True)
class Edge:
    """None of ``waiters`` can go on before each of ``awaited`` does, for one reason; both ascending.

    A rank that is among both waits for the others, and not for itself.

    ``operation`` is what the (first) waiter is in, where it is recorded; ``other`` what the first of the awaited has instead.
    ``weak``: the awaited have their half enqueued, behind what need not hold it.
    """

    waiters: tuple[int, ...]
    awaited: tuple[int, ...]
    reason: Reason
    operation: Operation | None
    other: Operation | None = None
    weak: bool = False

    def explain(self, many: bool) -> str:
        """The edge in words, without the ranks; ``many``: of several awaited ranks."""
        has, is_ = ("have", "are") if many else ("has", "is")
        if self.reason == "mismatch" and self.other is not None:
            return f"which {has} {describe(self.other)} at that number"
        if self.reason == "sizes" and self.other is not None:
            return f"which brought {describe(self.other)}"
        return {
            "absent": f"which {has} not joined",
            "sizes": f"which {has} brought tensors of other sizes",
            "queued": f"which {has} it queued behind another operation",
            "gone": f"whose process{'es are' if many else ' is'} gone",
            "returning": f"whose process{'es have' if many else ' has'} ended, and may be started anew",
            "silent": f"whose node{'s are' if many else ' is'} silent",
            "stopped": f"whose process{'es are' if many else ' is'} stopped",
            "unseen": f"which {is_} not seen from here or never started",
            "peer": "the other side, which does not meet it",
            "elsewhere": f"which {is_} somewhere else",
            "creation": f"which {is_} creating another group",
            "possible": "any of which it may be waiting for" if many else "which it may be waiting for",
        }.get(self.reason, "")


@dataclass(frozen=True)
class WaitGraph:
    """All edges, and the components no edge leads out of (the sinks), each a sorted tuple of ranks."""

    edges: tuple[Edge, ...]
    sinks: tuple[tuple[int, ...], ...]

    def within(self, ranks: Iterable[int]) -> tuple[Edge, ...]:
        """The edges among these ranks, without any others."""
        wanted = frozenset(ranks)
        found = (
            replace(
                edge,
                waiters=tuple(r for r in edge.waiters if r in wanted),
                awaited=tuple(r for r in edge.awaited if r in wanted),
            )
            for edge in self.edges
        )
        return tuple(edge for edge in found if edge.waiters and edge.awaited)

    def behind(self, sink: Iterable[int]) -> tuple[int, ...]:
        """The sink and all ranks whose waiting leads there, by way of others or not."""
        before: dict[int, list[int]] = {}
        for number, edge in enumerate(self.edges):
            for rank in edge.awaited:
                before.setdefault(rank, []).append(number)
        found = set(sink)
        todo, passed = list(found), set[int]()
        while todo:
            for number in before.get(todo.pop(), ()):
                if number not in passed:
                    passed.add(number)
                    fresh = [w for w in self.edges[number].waiters if w not in found]
                    found.update(fresh)
                    todo.extend(fresh)
        return tuple(sorted(found))


def _members(group: Group, world: Sequence[int]) -> Sequence[int]:
    return group.ranks or tuple(world)


#: What has tensors of one size and type on every rank, whatever the backend.
_ALIKE = frozenset({"all_reduce", "reduce", "broadcast"})
#: Why somebody is awaited, and the operation it has instead.
_Finding = tuple[Reason, Operation | None]


def _why_awaited(
    operation: Operation, other: RankView | None, m: int, history: History, apart: bool
) -> _Finding | None:
    """Why those in ``operation`` wait for member ``m``, if they do. ``apart``: they do not agree among themselves."""
    key, seq = operation.group.key, operation.seq
    theirs = history.at(key, seq).get(m)
    if theirs is not None and theirs.op != operation.op:
        return "mismatch", theirs
    if other is None:
        return "unseen", None
    if other.silent:  # also where it has joined: whether its half of the transfer has left it nobody can tell
        return "silent", None
    if other.motion.state in {"lost", "stopped"} and (theirs is None or not theirs.completed):
        # Even if it had joined: its half of the transfer is not served any more.
        return ("gone" if other.gone else "stopped"), None
    enqueued = history.enqueued(m, key)
    if enqueued is None:
        joined = other.wait is not None and other.wait.op in {operation.op, "backward", "wait", "copy", "synchronize"}
        return None if joined else ("elsewhere", None)
    if enqueued < seq:
        return "absent", None
    if theirs is None:
        return None
    if theirs.completed:
        # Its half was another one's, and nothing more comes of it.
        return ("sizes", theirs) if operation.op in _ALIKE and signature(theirs) != signature(operation) else None
    if apart or signature(theirs) != signature(operation):
        return "sizes", None if apart else theirs
    if other.frontier is not None and other.frontier.record_id < theirs.record_id and theirs in other.pending:
        return "queued", theirs
    return None


def _recorded_edges(
    waiters: Sequence[RankView], views: Mapping[int, RankView], history: History, world: Sequence[int]
) -> Iterator[Edge]:
    """The edges of ranks that are in the same operation by the recorder."""
    operation = waiters[0].frontier
    if operation is None:
        return
    apart = any(v.frontier is not None and signature(v.frontier) != signature(operation) for v in waiters)
    found = (
        (m, why)
        for m in _members(operation.group, world)
        if (why := _why_awaited(operation, views.get(m), m, history, apart)) is not None
    )
    yield from _edges(waiters, found, operation)


def _edges(
    waiters: Sequence[RankView], found: Iterable[tuple[int, _Finding]], operation: Operation | None
) -> Iterator[Edge]:
    """One edge a reason, and a kind of operation that is there instead."""
    ranks = tuple(sorted(view.rank for view in waiters))
    kinds: dict[tuple[Reason, str], list[int]] = {}
    others: dict[tuple[Reason, str], Operation | None] = {}
    for m, (reason, other) in found:
        key = (reason, describe(other) if other is not None and reason in {"mismatch", "sizes"} else "")
        kinds.setdefault(key, []).append(m)
        others.setdefault(key, other)
    for key, awaited in kinds.items():
        yield Edge(ranks, tuple(sorted(awaited)), key[0], operation, others[key])


#: Of more kinds of tensors than this in one operation, nobody is told who brought which: everybody waits for everybody.
_SIZES_TOLD = 32


def _companies(views: Iterable[RankView]) -> list[list[RankView]]:
    """The ranks that wait for the same others for the same reasons."""
    found: dict[Hashable, dict[Hashable, list[RankView]]] = {}
    for view in views:
        front, wait = view.frontier, view.wait
        if front is not None and not front.p2p:
            found.setdefault((front.group.key, front.seq, front.op), {}).setdefault(signature(front), []).append(view)
        elif front is not None or wait is None or wait.kind == "point_to_point":
            found[view.rank] = {None: [view]}  # its own wait, for a peer of its own
        else:
            creates = wait.kind == "group_creation" and view.rank in wait.peers
            shared = (wait.kind, wait.op, wait.exact, wait.peers, wait.group, creates)
            port = view.capture.identity.meeting_port if wait.kind == "initialization" else None
            state = (view.capture.groups_created, view.motion.state == "stuck", port)
            found.setdefault((*shared, *state), {}).setdefault(None, []).append(view)
    return [
        company
        for apart in found.values()
        for company in (apart.values() if len(apart) <= _SIZES_TOLD else [[v for own in apart.values() for v in own]])
    ]


_EXCHANGE = ({"exchange"}, {"exchange", "send"}, {"exchange", "recv"})


def _p2p_edges(
    view: RankView, views: Mapping[int, RankView], op: str, peers: Iterable[int], operation: Operation | None
) -> Iterator[Edge]:
    opposite = {"send": "recv", "recv": "send"}.get(op)

    def why(other: RankView | None) -> _Finding | None:
        if other is None or other.silent:
            return "unseen" if other is None else "silent", None
        recorded = next((o for o in other.pending if o.p2p and o.op == opposite and o.peer == view.rank), None)
        if recorded is not None:
            return ("queued", recorded) if _held_back(recorded, other) else None
        facing = other.wait is not None and (not other.wait.peers or view.rank in other.wait.peers)
        theirs = other.wait.op if other.wait is not None and facing else None
        # A pipeline's stage may send and receive in one batch, of which nobody can say what is still to come.
        meets = theirs is not None and (theirs == opposite or {op, theirs} in _EXCHANGE)
        if meets and view.wait is not None and other.wait is not None and operation is None:
            tags = {view.wait.tag, other.wait.tag}
            meets = None in tags or len(tags) == 1
        return None if meets else (("gone" if other.gone else "peer"), None)

    found = ((peer, finding) for peer in peers if (finding := why(views.get(peer))) is not None)
    yield from (replace(edge, weak=edge.reason == "queued") for edge in _edges([view], found, operation))


def _held_back(theirs: Operation, other: RankView) -> bool:
    """Whether the other half stands behind an operation that it is likely to wait for.

    A collective, or what is received: the program goes on with it. Sends to others are on their way by themselves.
    """
    front = other.frontier
    if front is None or front.record_id >= theirs.record_id or _one_batch(front, theirs):
        return False
    return not front.p2p or front.op == "recv"


def _one_batch(one: Operation, other: Operation) -> bool:
    """Whether two point-to-point operations of a rank were launched together: they have one number."""
    return one.p2p and other.p2p and one.seq == other.seq and one.group.key == other.group.key


def _create_apart(view: RankView, other: RankView) -> bool:
    """Whether both are creating a group, and not the same one: groups are numbered in each process as they come."""
    creating = all(v.wait is not None and v.wait.kind == "group_creation" for v in (view, other))
    if creating and view.wait is not None and other.wait is not None and view.wait.peers and other.wait.peers:
        named = bool(view.wait.group and other.wait.group)
        return view.wait.peers != other.wait.peers or (named and view.wait.group != other.wait.group)
    counts = (view.capture.groups_created, other.capture.groups_created)
    return creating and None not in counts and counts[0] != counts[1]


def _whereabouts(other: RankView | None) -> Reason:
    if other is None:
        return "unseen"
    if other.silent:
        return "silent"
    return "gone" if other.gone else "stopped" if other.motion.state == "stopped" else "elsewhere"


def _stack_edges(waiters: Sequence[RankView], views: Mapping[int, RankView], world: Sequence[int]) -> Iterator[Edge]:
    """Edges of ranks that are in one wait which no recorder shows: stores, group creation, initialisation, backward."""
    view = waiters[0]
    wait = view.wait
    if wait is None or (wait.kind in {"device", "backward", "work"} and view.motion.state != "stuck"):
        return

    def why(m: int) -> _Finding | None:
        other = views.get(m)
        if other is not None and joined(other):
            return None
        reason = "creation" if other is not None and _create_apart(view, other) else _whereabouts(other)
        if wait.kind == "initialization" and other is not None and other.returning:
            reason = "returning"  # torchrun starts a world rank by rank, and some starts of it fail
        if not wait.exact or (wait.kind == "work" and reason == "elsewhere"):
            reason = "possible"  # nor is it a proof where that rank is gone
        return reason, None

    def joined(other: RankView) -> bool:
        if wait.kind == "initialization":
            if None not in (ports := {v.capture.identity.meeting_port for v in (view, other)}) and len(ports) > 1:
                return False
            return bool(other.capture.progress) or (other.wait is not None and other.wait.kind == "initialization")
        alike = other.wait is not None and other.wait.kind == wait.kind and other.wait.op == wait.op
        return alike and other.motion.state != "stopped" and not _create_apart(view, other)

    # A group is created by its members, and by them alone.
    needed = wait.peers if wait.kind == "group_creation" and view.rank in wait.peers else world
    inside = {v.rank for v in waiters}
    yield from _edges(waiters, ((m, found) for m in needed if m not in inside and (found := why(m)) is not None), None)


def build_graph(
    views: Mapping[int, RankView], history: History, world: Sequence[int], waiting: Container[int]
) -> WaitGraph:
    """The graph over ``world`` (all global ranks of the job). ``waiting``: the ranks whose waits count."""
    edges: list[Edge] = []
    for waiters in _companies(view for rank, view in views.items() if rank in waiting):
        view = waiters[0]
        front, wait = view.frontier, view.wait
        if front is not None and front.p2p:
            for one in (o for o in view.pending if o.peer is not None and _one_batch(o, front)):
                edges += _p2p_edges(view, views, one.op, (one.peer,) if one.peer is not None else (), one)
        elif front is not None:
            edges += _recorded_edges(waiters, views, history, world)
        elif wait is not None and wait.kind == "point_to_point":
            edges += _p2p_edges(view, views, wait.op, wait.peers, None)
        else:
            edges += _stack_edges(waiters, views, world)
    graph = _make_graph(edges)
    if any(edge.weak for sink in graph.sinks if len(sink) > 1 for edge in graph.within(sink)):
        graph = _make_graph([edge for edge in edges if not edge.weak])  # no circle rests on a likelihood
    return graph


def _make_graph(edges: Sequence[Edge]) -> WaitGraph:
    return WaitGraph(tuple(edges), find_sinks([(e.waiters, e.awaited) for e in edges]))


def describe_waits(graph: WaitGraph, label: Callable[[int], str]) -> tuple[str, ...]:
    """The edges in words, those of one kind folded together: ``ranks 0-6 wait for rank 7, which has not joined``."""
    folded: dict[tuple[tuple[int, ...], str, str], list[int]] = {}
    for edge in graph.edges:
        for waiter in edge.waiters:
            why = edge.explain(len(edge.awaited) > 1)
            folded.setdefault((edge.awaited, label(waiter), why), []).append(waiter)
    return tuple(
        f"{_name(waiters)} {'wait' if len(waiters) > 1 else 'waits'} in {where} for {_name(awaited)}, {why}"
        for (awaited, where, why), waiters in folded.items()
    )


def _name(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"
