"""What the page's search field finds: ranks by number, node, state or name, with their groups; groups by name, with their ranks.

The agent searches, because the page of a large job has neither the nodes of its ranks nor all of its groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from markupsafe import Markup

from hangwatch.model.incident import HANG_KINDS
from hangwatch.model.live import LiveJob, LiveView
from hangwatch.model.progress import GroupFront
from hangwatch.outputs.html.cells import DIAMOND_MARK, MAX_TILES, css_state, render_cells, state_order
from hangwatch.outputs.html.elements import NOTHING, code, join, section, text, with_names
from hangwatch.outputs.html.group_progress import list_groups
from hangwatch.outputs.html.live import by_urgency
from hangwatch.outputs.html.tables import table
from hangwatch.outputs.html.verdict import render_heading
from hangwatch.outputs.wording import mark_culprit

#: The state of a rank of which nothing is known.
_UNKNOWN = "unknown"


class Matches(NamedTuple):
    """Ranks and process groups of a job."""

    ranks: frozenset[int]
    groups: tuple[GroupFront, ...]


def render_found(view: LiveView, query: str) -> Markup:
    """Return what a query finds in each job, or a sentence that it finds nothing."""
    found = join(with_names(_render(job, find(job, query)), job.names) for job in by_urgency(view.jobs))
    nothing = Markup("<section><p>No rank, node, group or state matches {}.</p></section>")
    return found or nothing.format(code(query))


def find(job: LiveJob, query: str) -> Matches:
    """Return the ranks and groups that a query is about: numbers of ranks, or a name or a part of one."""
    known, world = job.known, range(job.world_size or 0)
    spans = parse_ranks(query)
    if spans is not None:
        called = frozenset[str]()
        own = {rank for span in spans for rank in (*world[span.start : span.stop], *(r for r in known if r in span))}
    else:
        culprits, mark = _culprits(job)
        names = {name for one in known.values() for name in (one.node, one.state, one.name)}
        called = _called(query, {*names, *(group.label for group in job.groups), mark, _UNKNOWN})
        own = {rank for rank, one in known.items() if {one.node, one.state, one.name} & called}
        own.update(culprits if mark in called else (), set(world) - known.keys() if _UNKNOWN in called else ())
    groups = tuple(group for group in job.groups if group.label in called or not own.isdisjoint(group.ranks))
    members = (group.ranks for group in groups if group.label in called)
    return Matches(frozenset(own.union(*members) & (known.keys() | world)), groups)


def parse_ranks(query: str) -> tuple[range, ...] | None:
    """Return the ranks of ``5``, ``5,9``, ``40-47`` or ``ranks 0-2,5``; None if the query is something else."""
    numbers = query.removeprefix("ranks ").removeprefix("rank ").replace(",", " ").split()
    spans = [number.partition("-") for number in numbers]
    if not spans or not all(first.isdecimal() and (last or first).isdecimal() for first, _, last in spans):
        return None
    return tuple(range(int(first), int(last or first) + 1) for first, _, last in spans)


def _called(query: str, names: Collection[str]) -> frozenset[str]:
    """Return the name that is the query, whatever its case; else those that have it in them: ``gpu-1`` is not ``gpu-17``."""
    wanted = query.casefold()
    exact = frozenset(name for name in names if name.casefold() == wanted)
    return exact or frozenset(name for name in names if wanted in name.casefold())


def _culprits(job: LiveJob) -> tuple[frozenset[int], str]:
    """Return a job's culprits, and the word for them."""
    if job.incident is None:
        return frozenset(), ""
    return frozenset(job.incident.verdict.culprit_ranks), mark_culprit(job.incident.verdict)


def _render(job: LiveJob, found: Matches) -> Markup:
    if not found.ranks and not found.groups:
        return NOTHING
    every = len(job.known.keys() | range(job.world_size or 0))
    ranks = _rows(job, found.ranks) if len(found.ranks) <= MAX_TILES else _cells(job, found.ranks)
    return (
        render_heading(job)
        + section(f"{len(found.ranks)} of {every} ranks", ranks)
        + section(f"{len(found.groups)} of {len(job.groups)} process groups", list_groups(found.groups))
    )


def _cells(job: LiveJob, ranks: Collection[int]) -> Markup:
    culprits, mark = _culprits(job)
    states = {rank: one.state for rank, one in job.known.items()}
    return render_cells(states, culprits, job.world_size, mark, ranks)


def _rows(job: LiveJob, ranks: Collection[int]) -> Markup:
    """Return a table of a few ranks: culprits first, then by state."""
    known = job.known
    culprits, mark = _culprits(job)
    incident = job.incident if job.incident is not None and job.incident.verdict.kind in HANG_KINDS else None
    tops = {one.rank: one.stack[0] for one in incident.ranks if one.stack} if incident is not None else {}
    states = {rank: known[rank].state if rank in known else _UNKNOWN for rank in ranks}

    def row(rank: int) -> Iterator[str | Markup]:
        one = known.get(rank)
        named = Markup('<strong class="open">{}{} {}</strong>').format(DIAMOND_MARK, rank, mark)
        yield named if rank in culprits else str(rank)
        yield Markup('<i class="swatch {}"></i> {}').format(css_state(states[rank]), text(states[rank], 24))
        yield text(one.node, 100) if one is not None else NOTHING
        yield str(one.pid) if one is not None else NOTHING
        if tops:
            yield code(tops[rank]) if rank in tops else NOTHING

    ordered = sorted(ranks, key=lambda rank: (rank not in culprits, state_order(states[rank]), rank))
    heads = ("Rank", "State", "Node", "Pid", *(("Top frame",) if tops else ()))
    return table(heads, (tuple(row(rank)) for rank in ordered), css="found cards")
