"""The wait-for graph: which rank waits for which, and why. Its sinks hold everybody up. Pure."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hangwatch.analysis.alignment import History
from hangwatch.analysis.signatures import describe, signature
from hangwatch.analysis.views import RankView
from hangwatch.model.collectives import Group, Operation
from hangwatch.model.text import format_ranks

Reason = Literal[
    "absent", "mismatch", "sizes", "queued", "gone", "stopped", "unseen", "peer", "elsewhere", "creation", "possible"
]  # fmt: skip


@dataclass(frozen=True)
class Edge:
    """``waiter`` cannot go on before ``awaited`` does. ``operation`` is what the waiter is in, where it is recorded."""

    waiter: int
    awaited: int
    reason: Reason
    operation: Operation | None
    other: Operation | None = None

    def explain(self, many: bool) -> str:
        """The edge in words, without the ranks; ``many``: of several awaited ranks."""
        has, is_ = ("have", "are") if many else ("has", "is")
        if self.reason == "mismatch" and self.other is not None:
            return f"which {has} {describe(self.other)} at that number"
        if self.reason == "sizes" and self.other is not None:
            return f"which brought {describe(self.other)}"
        return {
            "absent": f"which {has} not joined",
            "queued": f"which {has} it queued behind another operation",
            "gone": f"whose process{'es are' if many else ' is'} gone",
            "stopped": f"whose process{'es are' if many else ' is'} stopped",
            "unseen": f"which {is_} not on this node or never started",
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

    def of(self, waiter: int) -> tuple[Edge, ...]:
        """The edges that leave one rank."""
        return tuple(e for e in self.edges if e.waiter == waiter)

    def within(self, ranks: Iterable[int]) -> tuple[Edge, ...]:
        """The edges among these ranks."""
        wanted = frozenset(ranks)
        return tuple(e for e in self.edges if e.waiter in wanted and e.awaited in wanted)

    def behind(self, sink: Iterable[int]) -> tuple[int, ...]:
        """The sink and all ranks whose waiting leads there, by way of others or not."""
        before: dict[int, list[int]] = {}
        for edge in self.edges:
            before.setdefault(edge.awaited, []).append(edge.waiter)
        found = set(sink)
        todo = list(found)
        while todo:
            fresh = [w for w in before.get(todo.pop(), ()) if w not in found]
            found.update(fresh)
            todo.extend(fresh)
        return tuple(sorted(found))


def _members(group: Group, world: Sequence[int]) -> Sequence[int]:
    return group.ranks or tuple(world)


def _recorded_edge(
    view: RankView, operation: Operation, other: RankView | None, m: int, history: History
) -> Edge | None:
    """Why ``view``'s frontier waits for member ``m``, if it does."""
    key, seq, rank = operation.group.key, operation.seq, view.rank
    theirs = history.at(key, seq).get(m)
    if theirs is not None and theirs.op != operation.op:
        return Edge(rank, m, "mismatch", operation, theirs)
    if other is None:
        return Edge(rank, m, "unseen", operation)
    if other.motion.state in {"lost", "stopped"} and (theirs is None or not theirs.completed):
        # Even if it had joined: its half of the transfer is not served any more.
        return Edge(rank, m, "gone" if other.gone else "stopped", operation)
    enqueued = history.enqueued(m, key)
    if enqueued is None:
        joined = other.wait is not None and other.wait.op in {operation.op, "backward", "wait", "copy", "synchronize"}
        return None if joined else Edge(rank, m, "elsewhere", operation)
    if enqueued < seq:
        return Edge(rank, m, "absent", operation)
    if theirs is None or theirs.completed:
        return None
    if signature(theirs) != signature(operation):
        return Edge(rank, m, "sizes", operation, theirs)
    if other.frontier is not None and other.frontier.record_id < theirs.record_id and theirs in other.pending:
        return Edge(rank, m, "queued", operation, theirs)
    return None


_EXCHANGE = ({"exchange"}, {"exchange", "send"}, {"exchange", "recv"})


def _p2p_edges(
    view: RankView, views: Mapping[int, RankView], op: str, peers: Iterable[int], operation: Operation | None
) -> list[Edge]:
    opposite = {"send": "recv", "recv": "send"}.get(op)
    edges = []
    for peer in peers:
        other = views.get(peer)
        if other is None:
            edges.append(Edge(view.rank, peer, "unseen", operation))
            continue
        facing = other.wait is not None and (not other.wait.peers or view.rank in other.wait.peers)
        theirs = other.wait.op if other.wait is not None and facing else None
        # A pipeline's stage may send and receive in one batch, of which nobody can say what is still to come.
        meets = theirs is not None and (theirs == opposite or {op, theirs} in _EXCHANGE)
        recorded = any(o.p2p and o.op == opposite and o.peer == view.rank for o in other.pending)
        if not (meets or recorded):
            edges.append(Edge(view.rank, peer, "gone" if other.gone else "peer", operation))
    return edges


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
    return "gone" if other.gone else "stopped" if other.motion.state == "stopped" else "elsewhere"


def _stack_edges(view: RankView, views: Mapping[int, RankView], world: Sequence[int]) -> list[Edge]:
    """Edges of a rank whose wait no recorder shows: point-to-point on Gloo, stores, group creation, initialisation."""
    wait = view.wait
    if wait is None or (wait.kind in {"device", "backward", "work"} and view.motion.state != "stuck"):
        return []
    if wait.kind == "point_to_point":
        return _p2p_edges(view, views, wait.op, wait.peers, None)

    def joined(other: RankView) -> bool:
        if wait.kind == "initialization":
            return bool(other.capture.progress) or (other.wait is not None and other.wait.kind == "initialization")
        alike = other.wait is not None and other.wait.kind == wait.kind and other.wait.op == wait.op
        return alike and other.motion.state != "stopped" and not _create_apart(view, other)

    edges = []
    # A group is created by its members, and by them alone.
    needed = wait.peers if wait.kind == "group_creation" and view.rank in wait.peers else world
    for m in needed:
        other = views.get(m)
        if m == view.rank or (other is not None and joined(other)):
            continue
        reason = "creation" if other is not None and _create_apart(view, other) else _whereabouts(other)
        if not wait.exact or (wait.kind == "work" and reason == "elsewhere"):
            reason = "possible"  # nor is it a proof where that rank is gone
        edges.append(Edge(view.rank, m, reason, None))
    return edges


def build_graph(
    views: Mapping[int, RankView], history: History, world: Sequence[int], waiting: Container[int]
) -> WaitGraph:
    """The graph over ``world`` (all global ranks of the job). ``waiting``: the ranks whose waits count."""
    edges: list[Edge] = []
    for view in views.values():
        if view.rank not in waiting:
            continue
        frontier = view.frontier
        if frontier is not None and frontier.p2p:
            edges += _p2p_edges(view, views, frontier.op, () if frontier.peer is None else (frontier.peer,), frontier)
        elif frontier is not None:
            found = (
                _recorded_edge(view, frontier, views.get(m), m, history)
                for m in _members(frontier.group, world)
                if m != view.rank
            )
            edges += [e for e in found if e is not None]
        else:
            edges += _stack_edges(view, views, world)
    return WaitGraph(tuple(edges), _sinks(edges))


def _sinks(edges: Sequence[Edge]) -> tuple[tuple[int, ...], ...]:
    """Components of the graph that no edge leads out of (Tarjan's algorithm, without recursion)."""
    after: dict[int, list[int]] = {}
    for edge in edges:
        after.setdefault(edge.waiter, []).append(edge.awaited)
        after.setdefault(edge.awaited, [])
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    stack: list[int] = []
    members: list[list[int]] = []
    for start in sorted(after):
        if start in index:
            continue
        work = [(start, iter(after[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while work:
            node, rest = work[-1]
            for nxt in rest:
                if nxt not in index:
                    index[nxt] = low[nxt] = len(index)
                    stack.append(nxt)
                    work.append((nxt, iter(after[nxt])))
                    break
                if nxt not in component:
                    low[node] = min(low[node], index[nxt])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    found: list[int] = []
                    while True:
                        top = stack.pop()
                        component[top] = len(members)
                        found.append(top)
                        if top == node:
                            break
                    members.append(sorted(found))
    leaves = {component[e.waiter] for e in edges if component[e.waiter] != component[e.awaited]}
    return tuple(sorted(tuple(m) for i, m in enumerate(members) if i not in leaves))


def describe_waits(graph: WaitGraph, label: Callable[[int], str]) -> tuple[str, ...]:
    """The edges in words, those of one kind folded together: ``ranks 0-6 wait for rank 7, which has not joined``."""
    by_waiter: dict[tuple[int, str, str], list[Edge]] = {}
    for edge in graph.edges:
        by_waiter.setdefault((edge.waiter, label(edge.waiter), edge.explain(False)), []).append(edge)
    folded: dict[tuple[tuple[int, ...], str, str], list[int]] = {}
    for (waiter, where, _), edges in by_waiter.items():
        awaited = tuple(sorted(e.awaited for e in edges))
        folded.setdefault((awaited, where, edges[0].explain(len(awaited) > 1)), []).append(waiter)
    return tuple(
        f"{_name(waiters)} {'wait' if len(waiters) > 1 else 'waits'} in {where} for {_name(awaited)}, {why}"
        for (awaited, where, why), waiters in folded.items()
    )


def _name(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"
