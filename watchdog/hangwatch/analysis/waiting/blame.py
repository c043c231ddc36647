"""Which ranks block the others, and whether it can be proven. Pure; the definition is in ``docs/architecture.md``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hangwatch.analysis.operations.alignment import History, SequenceDivergence
from hangwatch.analysis.places import bare
from hangwatch.analysis.ranks.file_locks import all_blocked_by_files
from hangwatch.analysis.ranks.shutdown import failed_ranks
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.waiting.graph import Edge, WaitGraph, find_sinks, has_circle
from hangwatch.analysis.waiting.proofs import find_mismatches, have_left_over, prove_cycle, prove_gone, prove_mismatch
from hangwatch.model.numbers import is_guest

#: Do not single out a rank in a larger circle: the search costs the square of its size.
_HUB_LIMIT = 64

Shape = Literal["nothing", "root", "cycle", "together", "outside", "blocked", "lingering", "left_over"]


@dataclass(frozen=True)
class Blame:
    """The outcome of the analysis.

    ``shape``: ``root`` (ranks that wait for no one block the others), ``cycle`` (the culprits wait for each other),
    ``together`` (all are in the same operation and nothing completes), ``outside`` (all waiting leads to processes that
    are no known rank: nobody is named, and nothing is proven), ``blocked`` (no rank waits for another, and all are
    stuck behind files), ``lingering`` (no rank waits for another: some have failed, and all others stay at their end),
    ``left_over`` (ranks wait in a group of which most have ended in good order) or ``nothing`` (no rank waits).
    ``proof``: why it can never resolve, in words; None if it might. ``component``: the ranks of the sinks that the
    waiting leads to.
    """

    shape: Shape
    culprits: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    component: tuple[int, ...] = ()
    diverged_at: SequenceDivergence | None = None
    proof: str | None = None


def _all_but_largest(sides: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the ranks of all but the first of these sides, which is the largest; of all sides on a tie."""
    tie = len(sides) > 1 and len(sides[0]) == len(sides[1])
    return tuple(sorted(rank for side in (sides if tie else sides[1:]) for rank in side))


def _stack_sides(views: Mapping[int, RankView], component: Sequence[int]) -> tuple[int, ...]:
    """Return the smaller side by what the stacks show, for ranks without recorded operations; all of them if not known."""
    sides: dict[tuple[str, str, int | None, int | None], list[int]] = defaultdict(list)
    for rank in component:
        wait = views[rank].wait if rank in views else None
        created = views[rank].capture.groups_created if wait is not None and wait.kind == "group_creation" else None
        name = f"{wait.op} {wait.group}" if wait is not None else ""
        port = views[rank].meets_at if wait is not None and wait.kind == "initialization" else None
        sides[(wait.kind, name, created, port) if wait else ("", "", None, None)].append(rank)
    ordered = sorted(sides.values(), key=len, reverse=True)
    if len(ordered) > 2 and len(ordered[0]) == len(ordered[1]):
        # Ranks in one loop may each be in another operation, a step apart. A rank that has left the loop is the odd one.
        ordered = _first_fork(views, [r for side in ordered for r in side])
    return _all_but_largest(ordered) or tuple(sorted(component))


def _first_fork(views: Mapping[int, RankView], ranks: Sequence[int]) -> list[list[int]]:
    """Return the ranks by where their call paths first diverge, from the outermost frame on, the largest part first."""
    paths = {r: [(f.file, bare(f), f.line) for f in reversed(views[r].frames)] if r in views else [] for r in ranks}
    for depth in range(max(map(len, paths.values()), default=0)):
        parts: dict[tuple[str, str, int] | None, list[int]] = defaultdict(list)
        for rank, path in paths.items():
            parts[path[depth] if depth < len(path) else None].append(rank)
        if len(parts) > 1:
            return sorted(parts.values(), key=len, reverse=True)
    return [list(ranks)]


def _sides_by_name(views: Mapping[int, RankView], component: Iterable[int]) -> list[list[int]]:
    """Return the ranks by the name of the group that they create, the largest side first; none unless all create one."""
    waits = [(r, views[r].wait) for r in component if r in views]
    creating = [(r, w) for r, w in waits if w is not None and w.kind == "group_creation" and w.group]
    sides: dict[str, list[int]] = defaultdict(list)
    for rank, wait in creating:
        sides[wait.group].append(rank)
    return sorted(sides.values(), key=len, reverse=True) if len(creating) == len(waits) else []


def _is_undecided_by_name(views: Mapping[int, RankView], component: Iterable[int], world: Sequence[int]) -> bool:
    """True if unseen ranks decide which name is the smaller side's: the hang is sure, and not who is named."""
    sizes = [len(side) for side in _sides_by_name(views, component)]
    if len(sizes) < 2:
        return False
    waits = [w for r in component if r in views and (w := views[r].wait) is not None]
    awaited = {tuple(w.peers or world) for w in waits}  # few, of many ranks each
    unknown = len(set().union(*awaited) - views.keys())
    return unknown > 0 and sizes[1] + unknown > sizes[0]


def _is_undecided_by_record(views: Mapping[int, RankView], component: Sequence[int], named: Container[int]) -> bool:
    """True if all of several ranks are named because one is in a collective that its own record does not show."""
    if len(component) <= 2 or not all(rank in named for rank in component):
        return False
    seen = [views[rank] for rank in component if rank in views and views[rank].capture.flight is not None]
    return any(v.frontier is None and v.wait is not None and v.wait.kind == "collective" for v in seen)


def _name_sides(views: Mapping[int, RankView], component: Iterable[int]) -> tuple[int, ...]:
    """Return the smaller side by name, if all ranks create a group of the same members: one side came too late to a name.

    All of them on a tie, none if they do anything else.
    """
    waits = [views[r].wait for r in component if r in views]
    members = {wait.peers if wait is not None else () for wait in waits}
    of_everybody = all(w is not None and w.kind == "group_creation" and w.exact and w.group for w in waits)
    if len(members) != 1 or (() in members and not of_everybody):
        return ()
    return _all_but_largest(_sides_by_name(views, component))


def _odd_ones(graph: WaitGraph, component: Sequence[int]) -> tuple[int, ...]:
    """Return the smaller of two sides that wait for each other, else the one rank that is part of every circle; else none."""
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
    """Return the ranks of a cycle that are named.

    They are the smaller side of a divergence that all took part in, else the ranks that all others are at odds with,
    else all.
    """
    named = _cycle_sides(views, component, diverged_at)
    return _odd_ones(graph, component) or named if len(named) == len(component) else named


def _cycle_sides(
    views: Mapping[int, RankView], component: Sequence[int], diverged_at: SequenceDivergence | None
) -> tuple[int, ...]:
    """Return the smaller side of a divergence that all of a cycle took part in, else all."""
    if by_name := _name_sides(views, component):
        return by_name
    if diverged_at is None or sum(not set(component).isdisjoint(side.ranks) for side in diverged_at.sides) < 2:
        return _undiverged_sides(views, component)  # it does not separate ranks of the circle from each other
    members = frozenset(diverged_at.group.ranks)
    if members and not members.issuperset(component):
        return tuple(component)
    named = diverged_at.minority(component) or tuple(component)
    if len(named) < len(component) or not diverged_at.silent:
        return named
    # It is a tie within the cycle, but other members of the group have completed what only some of the cycle have called.
    everyone = diverged_at.minority([r for side in diverged_at.sides for r in side.ranks])
    return tuple(r for r in everyone if r in component) or named


def _undiverged_sides(views: Mapping[int, RankView], component: Sequence[int]) -> tuple[int, ...]:
    """Return the smaller side of a cycle of which no record shows a divergence, else all."""
    seen = [views[r] for r in component if r in views]
    peers = {v.wait.peers if v.wait is not None else () for v in seen}
    if len(peers) > 1:
        return tuple(component)  # each waits for certain ranks: a send is no smaller side than a receive
    if peers <= {()} and all(v.frontier is not None for v in seen):
        return tuple(component)
    return _stack_sides(views, component)  # for example, all create a group of the same members by different names


def _sink_culprits(
    views: Mapping[int, RankView], graph: WaitGraph, sink: Sequence[int], divergences: Sequence[SequenceDivergence]
) -> tuple[tuple[int, ...], SequenceDivergence | None]:
    """Return which ranks are named for one sink, and where they diverged. Several sinks are several faults."""
    near = [d for d in divergences if any(not frozenset(sink).isdisjoint(s.ranks) for s in d.sides)]
    diverged_at = _relevant_divergence(near, graph, sink) if near else None
    if diverged_at is not None and diverged_at.mismatch:
        # A wrong pair may have gone through before the ranks got to where they are: who diverged first is to blame.
        everyone = [r for side in diverged_at.sides for r in side.ranks]
        minority = diverged_at.minority(everyone)
        if len(minority) < len(everyone) or any(_is_still_there(views, diverged_at, r) for r in sink if len(sink) == 1):
            return minority, diverged_at
    return (_cycle_culprits(views, graph, sink, diverged_at) if len(sink) > 1 else tuple(sink)), diverged_at


def _is_still_there(views: Mapping[int, RankView], divergence: SequenceDivergence, rank: int) -> bool:
    """True if a rank is in the operation that differs: it waits as well, though not for as long as the others yet."""
    front = views[rank].frontier if rank in views else None
    return front is not None and (front.group.key, front.seq) == (divergence.group.key, divergence.seq)


def _relevant_divergence(
    divergences: Sequence[SequenceDivergence], graph: WaitGraph, sink: Sequence[int]
) -> SequenceDivergence | None:
    """Return the divergence that explains a sink: the first wrong pair, wherever it was, else the earliest split; else None.

    If several divergences split the ranks behind the sink, prefer one whose group holds the whole sink. Which of several
    smaller groups diverged first is a matter of chance.
    """
    for divergence in divergences:
        if divergence.mismatch:
            return divergence
    behind = frozenset(graph.behind(sink))
    splits = [d for d in divergences if sum(not behind.isdisjoint(side.ranks) for side in d.sides) > 1]
    return next((d for d in splits if frozenset(sink).issubset(d.group.ranks)), splits[0] if splits else None)


def _is_reached(views: Mapping[int, RankView], divergence: SequenceDivergence) -> bool:
    """True if any rank has come to the operations that differ.

    A host on NCCL has many more enqueued behind the one that it waits in: if those differ, another difference is the
    reason.
    """
    if any(side.operation is None or side.operation.completed for side in divergence.sides):
        return True
    fronts = [o for s in divergence.sides for r in s.ranks if r in views and (o := views[r].frontier) is not None]
    here = (divergence.group.key, divergence.seq)
    return len(fronts) < sum(len(s.ranks) for s in divergence.sides) or any(
        (o.group.key, o.seq) == here for o in fronts
    )


def assign_blame(
    views: Mapping[int, RankView], history: History, graph: WaitGraph, waiting: Iterable[int], world: Sequence[int]
) -> Blame:
    """Return the blame for a graph. ``waiting``: the ranks whose waits count; ``world``: all ranks of the job."""
    waiting = tuple(sorted(waiting))
    if not waiting:
        return _blame_without_waits(views, world)
    if not graph.edges:
        return _blame_together(views, history, waiting)
    sinks = _seen_sinks(views, graph)
    return _blame_sinks(views, history, graph, sinks, waiting, world) if sinks else Blame("outside", waiting=waiting)


def _blame_sinks(
    views: Mapping[int, RankView],
    history: History,
    graph: WaitGraph,
    sinks: Sequence[tuple[int, ...]],
    waiting: Sequence[int],
    world: Sequence[int],
) -> Blame:
    """Return the blame if all waiting leads to these sinks: who of them is named, and whether it is proven."""
    cycles = [sink for sink in sinks if len(sink) > 1]
    component = frozenset(r for sink in sinks for r in sink)
    found = history.divergences(concerned=component | frozenset(waiting))
    divergences = tuple(d for d in found if _is_reached(views, d))
    mismatches = find_mismatches(graph.edges)
    circles = {cycle: proven for cycle in cycles if (proven := prove_cycle(views, cycle, graph)) is not None}
    proof = prove_gone(views, graph.edges, world) or prove_mismatch(mismatches) or next(iter(circles.values()), None)
    surest = _proven_sinks(views, graph, sinks, circles, mismatches)
    named, diverged_at = _name_culprits(views, graph, surest, divergences)
    if proof is not None and _is_undecided(views, graph, world, circles, divergences, named):
        proof = None
    if left := _find_left_over(views, graph, named):
        return Blame("left_over", left, tuple(r for r in waiting if r not in left), left, diverged_at, proof)
    shape: Shape = "cycle" if len(cycles) == len(sinks) else "root"
    others = tuple(r for r in waiting if r not in named)
    return Blame(shape, named, others, tuple(sorted(component)), diverged_at, proof)


def _blame_without_waits(views: Mapping[int, RankView], world: Sequence[int]) -> Blame:
    """Return who is to blame although no rank waits for another: failed ranks whose peers linger, or ranks blocked by files."""
    seen, ranks = {r: v for r, v in views.items() if not is_guest(r)}, tuple(r for r in world if not is_guest(r))
    if failed := failed_ranks(seen, ranks):
        return Blame("lingering", culprits=failed)
    return Blame("blocked", culprits=ranks) if all_blocked_by_files(seen, ranks) else Blame("nothing")


def _is_undecided(
    views: Mapping[int, RankView],
    graph: WaitGraph,
    world: Sequence[int],
    circles: Iterable[Sequence[int]],
    divergences: Iterable[SequenceDivergence],
    named: Collection[int],
) -> bool:
    """True if ranks of which too little is known decide who is named: the hang is sure, but the proof is not about them."""
    gone = any(e.reason == "gone" for e in graph.edges)
    if not gone and any(_is_undecided_by_number(divergence, named) for divergence in divergences):
        return True
    return any(
        _is_undecided_by_name(views, cycle, world) or _is_undecided_by_record(views, cycle, named) for cycle in circles
    )


def _proven_sinks(
    views: Mapping[int, RankView],
    graph: WaitGraph,
    sinks: Sequence[tuple[int, ...]],
    circles: Container[tuple[int, ...]],
    mismatches: Sequence[Edge],
) -> Sequence[tuple[int, ...]]:
    """Return the sinks that a proof is about, and those that are faults of their own; all sinks if there is no proof.

    A rank in a wait is no fault of its own: if its record is missing, it is not known whom it waits for. Nor is a rank
    for which others only may be waiting.
    """
    gone = {rank for edge in graph.edges if edge.reason == "gone" for rank in edge.awaited}
    pair = {rank for edge in mismatches for rank in (*edge.waiters, *edge.awaited)}
    about = [sink for sink in sinks if sink in circles or not (gone | pair).isdisjoint(sink)]
    if not about and not pair:
        return sinks
    surely = {rank for edge in graph.edges if not edge.weak for rank in edge.awaited}
    beside = [sink for sink in sinks if sink not in about and not surely.isdisjoint(sink)]
    apart = [sink for sink in beside if _surely_wait_for_none(views, sink)]
    return [*(about or [tuple(sorted(pair))]), *apart]


def _surely_wait_for_none(views: Mapping[int, RankView], sink: Sequence[int]) -> bool:
    """True if no rank of a sink waits for others; without a stack, or the text of its lines, that is not known."""
    seen = [views[r] for r in sink if r in views and views[r].wait is None]
    apart = (v.motion.state in {"lost", "stopped"} or any(f.source for f in v.frames) for v in seen)
    return len(seen) == len(sink) and all(apart)


def _is_undecided_by_number(divergence: SequenceDivergence, named: Iterable[int]) -> bool:
    """True if unknown members of a group decide which side is the smaller: the hang is sure, and not who is named."""
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
    """Return the culprits of these sinks, and where they diverged first (None: not known)."""
    culprits: set[int] = set()
    found: list[SequenceDivergence] = []
    for sink in sinks:
        named, own = _sink_culprits(views, graph, sink, divergences)
        culprits |= set(named)
        found += [own] if own is not None else []
    return tuple(sorted(culprits)), min(found, key=lambda d: (not d.mismatch, d.at_ns), default=None)


def _find_left_over(views: Mapping[int, RankView], graph: WaitGraph, named: Iterable[int]) -> tuple[int, ...]:
    """Return the ranks that wait in a call that ``named`` have not made, as they ended in good order; else none."""
    return next((e.waiters for e in graph.edges if set(named).issubset(e.awaited) and have_left_over(views, e)), ())


def _seen_sinks(views: Mapping[int, RankView], graph: WaitGraph) -> tuple[tuple[int, ...], ...]:
    """Return the sinks to be blamed: those with a rank that was seen, else circles of seen ranks, else all.

    It is not known whom an unseen rank waits for. A circle of seen ranks cannot resolve whatever the unseen do.
    """
    if not graph.sinks:
        return ()  # all leads to unknown processes: no circle on the way is to blame
    seen = tuple(sink for sink in graph.sinks if any(r in views for r in sink))
    return seen or _seen_circles(views, graph) or graph.sinks


def _seen_circles(views: Mapping[int, RankView], graph: WaitGraph) -> tuple[tuple[int, ...], ...]:
    """Return the circles of seen ranks in which each is blocked by what another one was seen to do."""
    known = [e for e in graph.within(views) if e.reason in {"absent", "mismatch", "sizes", "creation"} and not e.weak]
    return tuple(sink for sink in find_sinks([(e.waiters, e.awaited) for e in known]) if len(sink) > 1)


def _blame_together(views: Mapping[int, RankView], history: History, waiting: tuple[int, ...]) -> Blame:
    """Return the blame if no rank waits for one that could still come: ranks whose partners have all completed, else none."""
    fronts = [(r, o) for r in waiting if (o := views[r].frontier) is not None and not o.p2p]
    others = {r for _, o in fronts for r in o.group.ranks}.difference(waiting)
    if any(r in views and not views[r].settled for r in others):
        # It has joined during the capture: its stack and its record are older and show it elsewhere.
        return Blame("nothing")
    places = {(o.group.key, o.seq) for _, o in fronts}
    done = {place: {r for r, o in history.at(*place).items() if o.completed} for place in places}
    behind = [
        rank
        for rank, front in fronts
        if 0 < len(front.group.ranks) - 1 == len(done[front.group.key, front.seq] - {rank})
    ]
    if behind and len(behind) < len(views):
        return Blame("root", tuple(behind), tuple(r for r in waiting if r not in behind), tuple(behind))
    return Blame("together", (), waiting, waiting)
