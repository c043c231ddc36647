"""The wait-for graph as a value: who waits for whom and why, in edges and in words. ``edges.py`` builds it. Pure.

Ranks that are in one operation wait for the same members for the same reasons, so an edge leads from many to many: the graph
grows with the members of groups, and not with their squares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hangwatch.analysis.operations.signatures import describe
from hangwatch.model.collectives import Operation
from hangwatch.model.text import number_ranks, ranks_do

Reason = Literal[
    "absent", "mismatch", "sizes", "queued", "gone", "returning", "silent", "stopped", "unseen", "peer", "elsewhere",
    "creation", "possible", "outside", "answer", "key",
]  # fmt: skip


@dataclass(frozen=True)
class Edge:
    """None of ``waiters`` can go on before each of ``awaited`` does, for one reason; both ascending.

    A rank that is among both waits for the others, and not for itself. ``operation``: what the first waiter is in, if
    it is recorded; ``other``: what the first of the awaited has instead. ``weak``: it may resolve by itself, or its
    members are not all known, or it is an answer that is awaited. No circle is based on a weak edge, but for one of
    answers alone. ``proves``: a circle through it may be a proof. An edge ``outside`` awaits no process that has a rank
    in the job; one of a ``key`` awaits no process that is known to set it. Neither has any ``awaited``, so their
    waiters are in no sink.
    """

    waiters: tuple[int, ...]
    awaited: tuple[int, ...]
    reason: Reason
    operation: Operation | None
    other: Operation | None = None
    weak: bool = False
    proves: bool = True

    def explain(self, many: bool) -> str:
        """Return the edge in words, without the ranks; if there are none, what is awaited.

        ``many``: of several awaited ranks.
        """
        has, is_ = ("have", "are") if many else ("has", "is")
        if self.reason == "mismatch" and self.other is not None:
            return f"which called {describe(self.other)} at that number"
        if self.reason == "sizes" and self.other is not None:
            return f"which called it with {describe(self.other)}"
        return {
            "absent": f"which {has} not joined",
            "sizes": "which called it with tensors of other sizes",
            "queued": f"which {has} queued it behind another operation",
            "gone": f"whose process{'es are' if many else ' is'} gone",
            "returning": f"whose process{'es have' if many else ' has'} ended and may be restarted",
            "silent": f"whose node{'s are' if many else ' is'} silent",
            "stopped": f"whose process{'es are' if many else ' is'} stopped",
            "unseen": f"which {is_} not visible from here or never started",
            "peer": f"which {'do' if many else 'does'} not make the matching call",
            "elsewhere": f"which {is_} elsewhere",
            "creation": f"which {is_} creating another group",
            "outside": "a member that is no known rank of this job",
            "answer": "which has not answered",
            "key": "a key that no known process is about to set",
            "possible": "one of which may be the other end" if many else "which may be the other end",
        }.get(self.reason, "")


@dataclass(frozen=True)
class WaitGraph:
    """All edges, and the components that no edge leads out of (the sinks), each a sorted tuple of ranks."""

    edges: tuple[Edge, ...]
    sinks: tuple[tuple[int, ...], ...]

    @property
    def leaving(self) -> tuple[Edge, ...]:
        """The edges that lead to no known process: those to unseen members of groups, or if none, to keys of a store."""
        by_reason = ([e for e in self.edges if e.reason == reason] for reason in ("outside", "key"))
        return next((tuple(found) for found in by_reason if found), ())

    def within(self, ranks: Iterable[int]) -> tuple[Edge, ...]:
        """Return the edges among these ranks, without any others."""
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
        """Return the sink and all ranks whose waiting leads to it, directly or not."""
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


def describe_waits(graph: WaitGraph, label: Callable[[int], str]) -> tuple[str, ...]:
    """Return the edges in words, those of one kind folded together: ``ranks 0-6 wait for rank 7, which has not joined``."""
    folded: dict[tuple[tuple[int, ...], str, str], list[int]] = {}
    for edge in graph.edges:
        for waiter in edge.waiters:
            why = edge.explain(len(edge.awaited) > 1)
            folded.setdefault((edge.awaited, label(waiter), why), []).append(waiter)
    return tuple(
        f"{ranks_do(waiters, 'waits', 'wait')} in {where} for {number_ranks(awaited) + ', ' if awaited else ''}{why}"
        for (awaited, where, why), waiters in folded.items()
    )


def find_sinks(edges: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[tuple[int, ...], ...]:
    """Return the strongly connected components that no edge leaves, each sorted, in order of their lowest rank.

    An edge leads from many ranks to many. Each becomes a node of its own between them, so the work is in proportion to
    the ends of edges. Tarjan's algorithm (1972), without recursion.
    """
    after = _nodes(edges)
    component, members = _components(after)
    left = {component[node] for node, targets in after.items() if any(component[t] != component[node] for t in targets)}
    ranks = (tuple(sorted(r for r in nodes if r >= 0)) for i, nodes in enumerate(members) if i not in left)
    return tuple(sorted(sink for sink in ranks if sink))


def has_circle(edges: Sequence[tuple[Sequence[int], Sequence[int]]]) -> bool:
    """True if any ranks wait for each other, directly or not."""
    _, members = _components(_nodes(edges))
    return any(sum(node >= 0 for node in nodes) > 1 for nodes in members)


def _nodes(edges: Sequence[tuple[Sequence[int], Sequence[int]]]) -> dict[int, list[int]]:
    """Return what each node leads to: a rank to the edges that it waits by, an edge to the ranks it awaits."""
    # Ranks are 0 and up, edges -1 and down.
    after: dict[int, list[int]] = {}
    for number, (waiters, awaited) in enumerate(edges):
        node = -1 - number
        after[node] = list(awaited)
        for rank in waiters:
            after.setdefault(rank, []).append(node)
        for rank in awaited:
            after.setdefault(rank, [])
    return after


def _components(after: dict[int, list[int]]) -> tuple[dict[int, int], list[list[int]]]:
    """Return the number of each node's component, and the nodes of each component."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    stack: list[int] = []
    members: list[list[int]] = []
    for start, targets in after.items():
        if start in order:
            continue
        work = [(start, iter(targets))]
        order[start] = low[start] = len(order)
        stack.append(start)
        while work:
            node, rest = work[-1]
            for nxt in rest:
                if nxt not in order:
                    order[nxt] = low[nxt] = len(order)
                    stack.append(nxt)
                    work.append((nxt, iter(after[nxt])))
                    break
                if nxt not in component:
                    low[node] = min(low[node], order[nxt])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    found: list[int] = []
                    while True:
                        top = stack.pop()
                        component[top] = len(members)
                        found.append(top)
                        if top == node:
                            break
                    members.append(found)
    return component, members
