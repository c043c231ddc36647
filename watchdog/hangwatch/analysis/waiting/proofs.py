"""Why a hang can never resolve: two operations that cannot match, a circle of waits, or a rank that is gone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hangwatch.analysis.operations.signatures import describe
from hangwatch.analysis.ranks.shutdown import ended_well
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.waiting.graph import Edge, WaitGraph
from hangwatch.model.text import format_ranks


def find_mismatches(edges: Iterable[Edge]) -> list[Edge]:
    """Return the edges that are two operations in one place of a group, without groups whose members are not all known."""
    return [
        e for e in edges if e.reason == "mismatch" and not e.weak and e.operation is not None and e.other is not None
    ]


def prove_mismatch(edges: Sequence[Edge]) -> str | None:
    """Return the proof by the first of these mismatches, in words; None if there is none."""
    edge = edges[0] if edges else None
    if edge is None or edge.operation is None or edge.other is None:
        return None
    where = f"sequence number {edge.operation.seq} of {edge.operation.group.label}"
    return (
        f"rank {edge.waiters[0]} is in {describe(edge.operation)}, {where}, but rank "
        f"{edge.awaited[0]} called {describe(edge.other)} at that number: the two can never match"
    )


def prove_cycle(views: Mapping[int, RankView], component: Sequence[int], graph: WaitGraph) -> str | None:
    """Return the proof by a cycle: every rank in it is seen blocked, and no other thread of it could still join; else None."""
    seen, edges = [views[r] for r in component if r in views], graph.within(component)
    if len(seen) < len(component) or not all(v.blocked and v.alone and _is_known(v) for v in seen):
        return None
    if any(edge.weak or not edge.proves for edge in edges):
        return None
    if len({v.capture.flight is None for v in seen}) > 1:
        # The operation is on record for some ranks and not for others: it is not known who is at odds with whom.
        return None
    # Without a record, their beats tell how many collectives of the default group they have called.
    if len({p.enqueued for v in seen if v.capture.flight is None for p in v.capture.world_progress}) > 1:
        # A wrong pair has gone through for some of them: what they are in now does not tell who was at odds with whom.
        return None
    chain = ", ".join(f"rank {waiter} for rank {awaited}" for waiter, awaited in _one_cycle(edges))
    return f"ranks {format_ranks(component)} wait for each other in a circle ({chain}), and none of them can continue"


def _is_known(view: RankView) -> bool:
    """True if it is known in which group a blocked rank waits: by its record, else only if its stack shows the default one."""
    wait = view.wait
    if view.frontier is not None or wait is None:
        return True
    if wait.kind in {"backward", "work", "store", "initialization", "communicator"} or not wait.exact:
        return False
    return wait.kind != "collective" or bool(wait.default_group)


def _one_cycle(edges: Sequence[Edge]) -> list[tuple[int, int]]:
    """Return one simple cycle among the edges of a strongly connected component, as pairs of waiter and awaited."""
    after: dict[int, int] = {}
    for edge in edges:
        for waiter in edge.waiters:
            after[waiter] = min(after.get(waiter, edge.awaited[0]), edge.awaited[0])
    seen: dict[int, int] = {}
    node = min(after)
    while node not in seen:
        seen[node] = len(seen)
        node = after[node]
    return [(n, after[n]) for n, at in seen.items() if at >= seen[node]]


def prove_gone(views: Mapping[int, RankView], edges: Iterable[Edge], world: Sequence[int]) -> str | None:
    """Return the proof by a rank that is gone and to blame for that, in words; None if there is none."""
    gone = (e for e in edges if e.reason == "gone" and e.proves)
    edge = next((e for e in gone if have_left_over(views, e) or _gone_are_to_blame(views, e, world)), None)
    return f"rank {edge.waiters[0]} waits for rank {edge.awaited[0]}, whose process is gone" if edge else None


def have_left_over(views: Mapping[int, RankView], edge: Edge) -> bool:
    """True if most of the group have ended in good order without the call that the waiters are in.

    If numbers went through in wrong pairs, nothing else tells: a record ends with its process.
    """
    return (
        edge.reason == "gone"
        and edge.operation is not None
        and all(ended_well(views[r]) for r in edge.awaited)
        and 2 * len(edge.awaited) > len(edge.operation.group.ranks)
    )


def _gone_are_to_blame(views: Mapping[int, RankView], edge: Edge, world: Sequence[int]) -> bool:
    """True if the ranks that are gone are to blame: one has failed, or at least half of the group is still there."""
    members = edge.operation.group.ranks if edge.operation is not None else world
    there = [r for r in members if r in views and views[r].capture.processes and not views[r].gone]
    return not all(ended_well(views[r]) for r in edge.awaited) or 2 * len(there) >= len(members)
