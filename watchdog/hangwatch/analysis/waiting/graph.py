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
from hangwatch.model.text import format_ranks

Reason = Literal[
    "absent", "mismatch", "sizes", "queued", "gone", "returning", "silent", "stopped", "unseen", "peer", "elsewhere",
    "creation", "possible", "outside", "answer", "key",
]  # fmt: skip


@dataclass(frozen=True)
class Edge:
    """None of ``waiters`` can go on before each of ``awaited`` does, for one reason; both ascending.

    A rank that is among both waits for the others, and not for itself.

    ``operation`` is what the (first) waiter is in, where it is recorded; ``other`` what the first of the awaited has instead.
    ``weak``: the awaited have their half enqueued, behind what need not hold it, or the group has members that are not
    known, or it is an answer that is awaited; no circle is based on such an edge alone, but on answers that each awaits of the
    next. ``proves``: a circle by way of it may be a proof. An edge ``outside`` awaits no process that has a rank in the job, and
    one of a ``key`` none of which it can be said that it sets the key, so their waiters are in no sink.
    """

    waiters: tuple[int, ...]
    awaited: tuple[int, ...]
    reason: Reason
    operation: Operation | None
    other: Operation | None = None
    weak: bool = False
    proves: bool = True

    def explain(self, many: bool) -> str:
        """The edge in words, without the ranks; what is awaited, where that is none. ``many``: of several awaited ranks."""
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
            "outside": "a member, which no rank of this job says it is",
            "answer": "which has not answered",
            "key": "a key, of which it is not known who is to set it",
            "possible": "any of which it may be waiting for" if many else "which it may be waiting for",
        }.get(self.reason, "")


@dataclass(frozen=True)
class WaitGraph:
    """All edges, and the components no edge leads out of (the sinks), each a sorted tuple of ranks."""

    edges: tuple[Edge, ...]
    sinks: tuple[tuple[int, ...], ...]

    @property
    def leaving(self) -> tuple[Edge, ...]:
        """The edges that lead to no process: to a group's unknown member, or else for a key of a store."""
        by_reason = ([e for e in self.edges if e.reason == reason] for reason in ("outside", "key"))
        return next((tuple(found) for found in by_reason if found), ())

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


def describe_waits(graph: WaitGraph, label: Callable[[int], str]) -> tuple[str, ...]:
    """The edges in words, those of one kind folded together: ``ranks 0-6 wait for rank 7, which has not joined``."""
    folded: dict[tuple[tuple[int, ...], str, str], list[int]] = {}
    for edge in graph.edges:
        for waiter in edge.waiters:
            why = edge.explain(len(edge.awaited) > 1)
            folded.setdefault((edge.awaited, label(waiter), why), []).append(waiter)
    return tuple(
        f"{_name(waiters)} {'wait' if len(waiters) > 1 else 'waits'} in {where} for "
        f"{_name(awaited) + ', ' if awaited else ''}{why}"
        for (awaited, where, why), waiters in folded.items()
    )


def _name(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"
