"""Who may set the key of a store that a rank waits for: the processes that are connected to that store, and no others. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.waiting.answers import waits_for_children
from hangwatch.model.numbers import is_guest, same_world


def find_setters(view: RankView, views: Mapping[int, RankView], world: Sequence[int]) -> Sequence[int]:
    """Return the processes that may set the key that a rank waits for, ascending.

    All of its world if it was not seen who is connected to the store. A rank that is gone may have had a connection.
    One on another node may have one, as long as some connections are of processes that are not seen here. A process
    that waits for the end of its children, as one does that keeps the store for them, sets no key.
    """
    own = same_world(view.rank, world)
    store = view.sample.store if view.sample is not None else None
    if store is None:
        return own
    node = view.capture.identity.node
    clients = set(store.clients)
    found = {r for r, v in views.items() if v.capture.identity.node == node and v.capture.identity.pid in clients}
    for rank in own:
        other = views.get(rank)
        elsewhere = other is None or other.silent or other.capture.identity.node != node
        if (elsewhere and store.unseen) or (other is not None and other.gone):
            found.add(rank)
    beside = (r for r in found & views.keys() if views[r].capture.identity.worldless)
    keepers = {r for r in beside if waits_for_children(views[r])}
    return sorted(found - keepers - {view.rank})


def find_reached(views: Mapping[int, RankView], answers: Mapping[int, int], world: Sequence[int]) -> frozenset[int]:
    """Return the ranks of all worlds, and the processes beside them that one of these waits for, directly or not."""
    found = {r for r, v in views.items() if not v.capture.identity.worldless}
    todo = list(found)
    while todo:
        rank = todo.pop()
        view = views[rank]
        waits = view.wait is not None and view.wait.kind == "store"
        after = {*([answers[rank]] if rank in answers else []), *(find_setters(view, views, world) if waits else ())}
        fresh = (after & views.keys()) - found
        found |= fresh
        todo += fresh
    return frozenset(found)


def names_one(candidates: Sequence[int]) -> bool:
    """True if these candidates may be named: all of them if they are ranks of the job, else only a single one."""
    return len(candidates) == 1 or not any(map(is_guest, candidates))
