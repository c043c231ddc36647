"""Which ranks block the others, and whether it can be proven. Pure; the definition is in ``docs/architecture.md``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hangwatch.analysis.operations.alignment import History, SequenceDivergence
from hangwatch.analysis.operations.signatures import describe
from hangwatch.analysis.places import bare
from hangwatch.analysis.ranks.file_locks import all_blocked_by_files
from hangwatch.analysis.ranks.shutdown import ended_well, failed_ranks
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.waiting.graph import Edge, WaitGraph
from hangwatch.analysis.waiting.sinks import find_sinks, has_circle
from hangwatch.model.numbers import is_guest
from hangwatch.model.text import format_ranks

#: Of a larger circle no rank is singled out: looking for that one costs the square of its size.
_HUB_LIMIT = 64

Shape = Literal["nothing", "root", "cycle", "together", "outside", "blocked", "lingering", "left_over"]


@dataclass(frozen=True)
class Blame:
    """The outcome of the analysis.

    ``shape``: ``root`` (ranks that wait for no one block the others), ``cycle`` (they wait for each other),
    ``together`` (all are in the same operation and nothing completes), ``outside`` (all waiting leads to members of a group that
    no rank says it is: no rank is named, and nothing is proven), ``blocked`` (no one waits for others, and all are
    stuck behind files), ``lingering`` (no one does, as some have failed, and all others stay at their end), ``left_over``
    (ranks wait in a group of which most have ended in good order) or ``nothing`` (no one waits). ``proof`` says in words
    why it can never resolve; None if it might. ``component`` is the sink the waiting leads to.
    """

    shape: Shape
    culprits: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    component: tuple[int, ...] = ()
    diverged_at: SequenceDivergence | None = None
    proof: str | None = None


def _stack_sides(views: Mapping[int, RankView], component: Iterable[int]) -> tuple[int, ...]:
    """The smaller side by what the stacks show, for ranks without recorded operations; all of them on a tie."""
    sides: dict[tuple[str, str, int | None, int | None], list[int]] = defaultdict(list)
    for rank in component:
        wait = views[rank].wait if rank in views else None
        created = views[rank].capture.groups_created if wait is not None and wait.kind == "group_creation" else None
        name = f"{wait.op} {wait.group}" if wait is not None else ""
        port = views[rank].meets_at if wait is not None and wait.kind == "initialization" else None
        sides[(wait.kind, name, created, port) if wait else ("", "", None, None)].append(rank)
    ordered = sorted(sides.values(), key=len, reverse=True)
    if len(ordered) > 2 and len(ordered[0]) == len(ordered[1]):
        # Each in an operation of its own: ranks that are in one loop may well be, a step apart. Who has left it is not.
        ordered = _first_fork(views, [r for side in ordered for r in side])
    tie = len(ordered) > 1 and len(ordered[0]) == len(ordered[1])
    return tuple(sorted(r for side in (ordered if tie or len(ordered) == 1 else ordered[1:]) for r in side))


def _first_fork(views: Mapping[int, RankView], ranks: Sequence[int]) -> list[list[int]]:
    """The ranks by where their call paths diverge first, from the outermost frame on; the largest part comes first."""
    paths = {r: [(f.file, bare(f), f.line) for f in reversed(views[r].frames)] if r in views else [] for r in ranks}
    for depth in range(max(map(len, paths.values()), default=0)):
        parts: dict[tuple[str, str, int] | None, list[int]] = defaultdict(list)
        for rank, path in paths.items():
            parts[path[depth] if depth < len(path) else None].append(rank)
        if len(parts) > 1:
            return sorted(parts.values(), key=len, reverse=True)
    return [list(ranks)]


def _sides_by_name(views: Mapping[int, RankView], component: Iterable[int]) -> list[list[int]]:
    """The ranks by the name of the group that they create, the most first; none unless all are creating one."""
    waits = [(r, views[r].wait) for r in component if r in views]
    creating = [(r, w) for r, w in waits if w is not None and w.kind == "group_creation" and w.group]
    sides: dict[str, list[int]] = defaultdict(list)
    for rank, wait in creating:
        sides[wait.group].append(rank)
    return sorted(sides.values(), key=len, reverse=True) if len(creating) == len(waits) else []


def _is_undecided_by_name(views: Mapping[int, RankView], component: Iterable[int], world: Sequence[int]) -> bool:
    """Whether ranks that were not seen decide which name is the smaller side's: the hang is sure, and not who is named."""
    sizes = [len(side) for side in _sides_by_name(views, component)]
    waits = [w for r in component if r in views and (w := views[r].wait) is not None]
    unknown = len({m for w in waits for m in (w.peers or world)} - views.keys())
    return unknown > 0 and len(sizes) > 1 and sizes[1] + unknown > sizes[0]


def _is_undecided_by_record(views: Mapping[int, RankView], component: Sequence[int], named: Container[int]) -> bool:
    """Whether all of several are named because one is in a collective that its record, which it has, does not show."""
    if len(component) <= 2 or not all(rank in named for rank in component):
        return False
    seen = [views[rank] for rank in component if rank in views and views[rank].capture.flight is not None]
    return any(v.frontier is None and v.wait is not None and v.wait.kind == "collective" for v in seen)


def _name_sides(views: Mapping[int, RankView], component: Iterable[int]) -> tuple[int, ...]:
    """The smaller side by name, of ranks that all create the group of the same members: of two names one came too late.

    All of them on a tie, none where they do anything else.
    """
    waits = [views[r].wait for r in component if r in views]
    members = {wait.peers if wait is not None else () for wait in waits}
    of_everybody = all(w is not None and w.kind == "group_creation" and w.exact and w.group for w in waits)
    if len(members) != 1 or (() in members and not of_everybody):
        return ()
    ordered = _sides_by_name(views, component)
    tie = len(ordered) > 1 and len(ordered[0]) == len(ordered[1])
    return tuple(sorted(r for side in (ordered if tie else ordered[1:]) for r in side))


def _odd_ones(graph: WaitGraph, component: Sequence[int]) -> tuple[int, ...]:
    """The smaller of two sides that wait for each other; else the one rank without which the others would wait in no circle, if
    it is one only: all of them are at odds with it."""
    edges = graph.within(component)
    sides = sorted((frozenset(e.waiters) for e in edges), key=len)
    if len(sides) == 2 and sorted(rank for side in sides for rank in side) == sorted(component):
        return tuple(sorted(sides[0])) if len(sides[0]) < len(sides[1]) else ()

    def circular(without: int) -> bool:
        rest = frozenset(component) - {without}
        return has_circle([([w for w in e.waiters if w in rest], [a for a in e.awaited if a in rest]) for e in edges])

    found = [rank for rank in component if not circular(rank)] if 2 < len(component) <= _HUB_LIMIT else []
    return tuple(found) if len(found) == 1 else ()


def _cycle_culprits(
    views: Mapping[int, RankView], graph: WaitGraph, component: Sequence[int], diverged_at: SequenceDivergence | None
) -> tuple[int, ...]:
    """Which of a cycle's ranks are named: the smaller side of a divergence that all of them took part in, else those that the
    others are at odds with, else all."""
    named = _cycle_sides(views, component, diverged_at)
    return _odd_ones(graph, component) or named if len(named) == len(component) else named


def _cycle_sides(
    views: Mapping[int, RankView], component: Sequence[int], diverged_at: SequenceDivergence | None
) -> tuple[int, ...]:
    """The smaller side of a divergence that all of a cycle took part in, else all."""
    if by_name := _name_sides(views, component):
        return by_name
    if diverged_at is not None and sum(not set(component).isdisjoint(side.ranks) for side in diverged_at.sides) < 2:
        diverged_at = None  # it separates those outside of the circle from those in it
    waits = [views[r].wait for r in component if r in views]
    if diverged_at is None and any(w is not None and w.peers for w in waits):
        if len({w.peers if w is not None else () for w in waits}) > 1:
            return tuple(component)  # each waits for certain ranks: a send is no smaller side than a receive
        return _stack_sides(views, component)  # all create a group of the same members, by different names
    if diverged_at is None:
        recorded = all(views[r].frontier is not None for r in component if r in views)
        return tuple(component) if recorded else _stack_sides(views, component)
    members = frozenset(diverged_at.group.ranks)
    if members and not members.issuperset(component):
        return tuple(component)
    named = diverged_at.minority(component) or tuple(component)
    if len(named) < len(component) or not diverged_at.silent:
        return named
    # A tie among themselves. Others of the group have been through what only some of the cycle have called.
    everyone = diverged_at.minority([r for side in diverged_at.sides for r in side.ranks])
    return tuple(r for r in everyone if r in component) or named


def _sink_culprits(
    views: Mapping[int, RankView], graph: WaitGraph, sink: Sequence[int], divergences: Sequence[SequenceDivergence]
) -> tuple[tuple[int, ...], SequenceDivergence | None]:
    """Which ranks are named for one sink, and where they diverged. Several sinks are several faults, each by itself."""
    reach = frozenset(graph.behind(sink))
    near = [d for d in divergences if any(not frozenset(sink).isdisjoint(s.ranks) for s in d.sides)]
    diverged_at = _relevant_divergence(near, frozenset(sink), reach)
    if diverged_at is not None and diverged_at.mismatch:
        # A wrong pair may have gone through before the ranks got to where they are: who diverged first is to blame.
        everyone = [r for side in diverged_at.sides for r in side.ranks]
        minority = diverged_at.minority(everyone)
        if len(minority) < len(everyone) or any(_is_still_there(views, diverged_at, r) for r in sink if len(sink) == 1):
            return minority, diverged_at
    return (_cycle_culprits(views, graph, sink, diverged_at) if len(sink) > 1 else tuple(sink)), diverged_at


def _is_still_there(views: Mapping[int, RankView], divergence: SequenceDivergence, rank: int) -> bool:
    """Whether a rank is in the operation that differs: it waits as well, though not for as long as the others yet."""
    front = views[rank].frontier if rank in views else None
    return front is not None and (front.group.key, front.seq) == (divergence.group.key, divergence.seq)


def _relevant_divergence(
    divergences: Sequence[SequenceDivergence], sink: frozenset[int], component: frozenset[int]
) -> SequenceDivergence | None:
    """A wrong pair comes first, wherever it was; else the earliest divergence that splits the component, and in a group
    that holds all of the sink where there is one: which of several smaller groups came first is a matter of chance."""
    for divergence in divergences:
        if divergence.mismatch:
            return divergence
    splits = [d for d in divergences if sum(not component.isdisjoint(side.ranks) for side in d.sides) > 1]
    return next((d for d in splits if sink.issubset(d.group.ranks)), splits[0] if splits else None)


def _is_reached(views: Mapping[int, RankView], divergence: SequenceDivergence) -> bool:
    """Whether anybody has come to the operations that differ. A host on NCCL has many more enqueued behind what it waits in:
    those that differ there do so for another difference's sake."""
    if any(side.operation is None or side.operation.completed for side in divergence.sides):
        return True
    fronts = [o for s in divergence.sides for r in s.ranks if r in views and (o := views[r].frontier) is not None]
    here = (divergence.group.key, divergence.seq)
    return len(fronts) < sum(len(s.ranks) for s in divergence.sides) or any(
        (o.group.key, o.seq) == here for o in fronts
    )


def _mismatches(edges: Iterable[Edge]) -> list[Edge]:
    """Two operations in one place of a group; none of a group that has members which are not known."""
    return [
        e for e in edges if e.reason == "mismatch" and not e.weak and e.operation is not None and e.other is not None
    ]


def _prove_mismatch(edges: Sequence[Edge]) -> str | None:
    edge = edges[0] if edges else None
    if edge is None or edge.operation is None or edge.other is None:
        return None
    where = f"{edge.operation.group.label} at number {edge.operation.seq}"
    return (
        f"rank {edge.waiters[0]} is in {describe(edge.operation)} in {where}, rank {edge.awaited[0]} used that number "
        f"for {describe(edge.other)}: the two can never meet"
    )


def _prove_cycle(views: Mapping[int, RankView], component: Sequence[int], graph: WaitGraph) -> str | None:
    """A cycle is a proof if every rank in it is seen blocked, and no other thread of it could still join."""
    if not all(r in views and views[r].blocked and views[r].alone for r in component):
        return None
    if any(edge.weak or not edge.proves for edge in graph.within(component)):
        return None
    if len({views[r].capture.flight is None for r in component}) > 1:
        # What some of them are in is on record, and of others it is not: who is at odds with whom is not known.
        return None
    if len(_numbers(views, component)) > 1:
        # A wrong pair has gone through for some of them: what they are in now does not say who was at odds with whom.
        return None
    # Where no operations are recorded, the group is known only when the stack shows the default one.
    for rank in component:
        view = views[rank]
        wait = view.wait
        unrecorded = view.frontier is None and wait is not None
        if (
            unrecorded
            and wait is not None
            and (wait.kind in {"backward", "work", "store", "initialization", "communicator"} or not wait.exact)
        ):
            return None
        if unrecorded and wait is not None and wait.kind == "collective" and not wait.default_group:
            return None
    chain = ", ".join(f"rank {waiter} for rank {awaited}" for waiter, awaited in _one_cycle(graph.within(component)))
    return f"ranks {format_ranks(component)} wait for each other in a circle ({chain}), and none of them can move"


def _numbers(views: Mapping[int, RankView], component: Iterable[int]) -> set[int]:
    """How many collectives of the default group these ranks have called, by their beats, where no record shows which."""
    unrecorded = (views[r].capture for r in component if views[r].capture.flight is None)
    return {p.enqueued for capture in unrecorded for p in capture.world_progress}


def _one_cycle(edges: Sequence[Edge]) -> list[tuple[int, int]]:
    """One simple cycle among the edges of a strongly connected component, by waiter and awaited."""
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


def _prove_gone(views: Mapping[int, RankView], edges: Iterable[Edge], world: Sequence[int]) -> str | None:
    gone = (e for e in edges if e.reason == "gone" and e.proves)
    edge = next((e for e in gone if _left_over(views, e) or _left_others(views, e, world)), None)
    return f"rank {edge.waiters[0]} waits for rank {edge.awaited[0]}, whose process is gone" if edge else None


def assign_blame(
    views: Mapping[int, RankView], history: History, graph: WaitGraph, waiting: Iterable[int], world: Sequence[int]
) -> Blame:
    """Blame for a graph; ``waiting`` are the ranks whose waits count, ``world`` all that the job has."""
    waiting = tuple(sorted(waiting))
    if not waiting:
        seen, ranks = {r: v for r, v in views.items() if not is_guest(r)}, [r for r in world if not is_guest(r)]
        if failed := failed_ranks(seen, ranks):
            return Blame("lingering", culprits=failed)
        return Blame("blocked", culprits=tuple(ranks)) if all_blocked_by_files(seen, ranks) else Blame("nothing")
    if not graph.edges:
        return _blame_together(views, history, waiting)
    sinks = _seen_sinks(views, graph)
    if not sinks:
        return Blame("outside", waiting=waiting)
    cycles = [sink for sink in sinks if len(sink) > 1]
    component = frozenset(r for sink in sinks for r in sink)
    found = history.divergences(concerned=component | frozenset(waiting))
    divergences = tuple(d for d in found if _is_reached(views, d))
    mismatches = _mismatches(graph.edges)
    circles = {cycle: proven for cycle in cycles if (proven := _prove_cycle(views, cycle, graph)) is not None}
    proof = _prove_gone(views, graph.edges, world) or _prove_mismatch(mismatches) or next(iter(circles.values()), None)
    surest = _proven_sinks(views, graph, sinks, circles, mismatches)
    named, diverged_at = _name_culprits(views, graph, surest, divergences)
    if not any(e.reason == "gone" for e in graph.edges) and any(_is_undecided(d, named) for d in divergences):
        proof = None
    if any(
        _is_undecided_by_name(views, cycle, world) or _is_undecided_by_record(views, cycle, named) for cycle in circles
    ):
        proof = None
    left = next((e.waiters for e in graph.edges if set(named).issubset(e.awaited) and _left_over(views, e)), ())
    if left:
        return Blame("left_over", left, tuple(r for r in waiting if r not in left), left, diverged_at, proof)
    shape: Shape = "cycle" if cycles and len(cycles) == len(sinks) else "root"
    alone = tuple(r for r in waiting if r not in named)
    return Blame(shape, named, alone, tuple(sorted(component)), diverged_at, proof)


def _proven_sinks(
    views: Mapping[int, RankView],
    graph: WaitGraph,
    sinks: Sequence[tuple[int, ...]],
    circles: Container[tuple[int, ...]],
    mismatches: Sequence[Edge],
) -> Sequence[tuple[int, ...]]:
    """The sinks that a proof is about, and faults of their own beside it; all sinks where there is no proof.

    A rank that is in a wait is no fault of its own: whom it waits for was not seen, where its record is missing. Nor is one
    of which it is only likely that others wait for it.
    """
    gone = {rank for edge in graph.edges if edge.reason == "gone" for rank in edge.awaited}
    pair = {rank for edge in mismatches for rank in (*edge.waiters, *edge.awaited)}
    about = [sink for sink in sinks if sink in circles or not (gone | pair).isdisjoint(sink)]
    if not about and not pair:
        return sinks
    surely = {rank for edge in graph.edges if not edge.weak for rank in edge.awaited}
    beside = [sink for sink in sinks if sink not in about and not surely.isdisjoint(sink)]
    apart = [sink for sink in beside if all(r in views and _is_seen_apart(views[r]) for r in sink)]
    return [*(about or [tuple(sorted(pair))]), *apart]


def _is_seen_apart(view: RankView) -> bool:
    """Whether a rank is seen to be in no wait for others. Of one without a stack, or the text of its lines, it is not known."""
    read = any(f.source for f in view.frames)
    return view.wait is None and (read or view.motion.state in {"lost", "stopped"})


def _is_undecided(divergence: SequenceDivergence, named: Iterable[int]) -> bool:
    """Whether members of which nothing is known decide which side is the smaller: the hang is sure, and not who is named."""
    sizes = sorted((len(side.ranks) for side in divergence.sides), reverse=True)
    unknown = len(divergence.group.ranks) - sum(sizes)
    here = {rank for side in divergence.sides for rank in side.ranks}
    return unknown > 0 and len(sizes) > 1 and sizes[1] + unknown > sizes[0] and not here.isdisjoint(named)


def _name_culprits(
    views: Mapping[int, RankView],
    graph: WaitGraph,
    sinks: Iterable[Sequence[int]],
    divergences: Sequence[SequenceDivergence],
) -> tuple[tuple[int, ...], SequenceDivergence | None]:
    """The culprits of these sinks, and where they diverged first."""
    culprits: set[int] = set()
    found: list[SequenceDivergence] = []
    for sink in sinks:
        named, own = _sink_culprits(views, graph, sink, divergences)
        culprits |= set(named)
        found += [own] if own is not None else []
    return tuple(sorted(culprits)), min(found, key=lambda d: (not d.mismatch, d.at_ns), default=None)


def _left_over(views: Mapping[int, RankView], edge: Edge) -> bool:
    """Whether the waiters are in a call that most of their group have not made: all that they wait for have ended in good order.

    Of numbers that went through in wrong pairs nothing else tells: a record ends with its process.
    """
    return (
        edge.reason == "gone"
        and edge.operation is not None
        and all(ended_well(views[r]) for r in edge.awaited)
        and 2 * len(edge.awaited) > len(edge.operation.group.ranks)
    )


def _left_others(views: Mapping[int, RankView], edge: Edge, world: Sequence[int]) -> bool:
    """Whether those that are gone are to blame for it: of those that ended in good order half of the others have to be there."""
    members = edge.operation.group.ranks if edge.operation is not None else world
    there = [r for r in members if r in views and views[r].capture.processes and not views[r].gone]
    return not all(ended_well(views[r]) for r in edge.awaited) or 2 * len(there) >= len(members)


def _seen_sinks(views: Mapping[int, RankView], graph: WaitGraph) -> tuple[tuple[int, ...], ...]:
    """The sinks to be blamed: of a rank that was not seen it is not known whom it waits for, so those that were seen come first,
    and then a circle of such, which cannot resolve whatever the unseen do."""
    if not graph.sinks:
        return ()  # all leads to processes of which nothing is known: no circle on the way is blamed for that
    seen = tuple(sink for sink in graph.sinks if any(r in views for r in sink))
    return seen or _seen_circles(views, graph) or graph.sinks


def _seen_circles(views: Mapping[int, RankView], graph: WaitGraph) -> tuple[tuple[int, ...], ...]:
    """The circles of ranks that were seen, each blocked by what another one was seen to do."""
    known = [e for e in graph.within(views) if e.reason in {"absent", "mismatch", "sizes", "creation"} and not e.weak]
    return tuple(sink for sink in find_sinks([(e.waiters, e.awaited) for e in known]) if len(sink) > 1)


def _blame_together(views: Mapping[int, RankView], history: History, waiting: tuple[int, ...]) -> Blame:
    """No rank waits for one that could still come: a rank whose partners are done hangs itself, else it is no rank."""
    fronts = [(r, o) for r in waiting if (o := views[r].frontier) is not None and not o.p2p]
    others = {r for _, o in fronts for r in o.group.ranks}.difference(waiting)
    if any(r in views and not views[r].settled for r in others):
        # It has called that while it was looked at: by its stack and its record, which are of before, it was elsewhere.
        return Blame("nothing")
    done: dict[tuple[str, int], frozenset[int]] = {}
    for key, seq in {(o.group.key, o.seq) for _, o in fronts}:
        done[key, seq] = frozenset(r for r, o in history.at(key, seq).items() if o.completed)
    behind = []
    for rank, front in fronts:
        rest = len(front.group.ranks) - 1
        if rest > 0 and len(done[front.group.key, front.seq] - {rank}) == rest:
            behind.append(rank)
    if behind and len(behind) < len(views):
        return Blame("root", tuple(behind), tuple(r for r in waiting if r not in behind), tuple(behind))
    return Blame("together", (), waiting, waiting)
