"""Whose key a rank waits for, in a store that its program uses by itself, if its other clients are not seen. Pure.

Nothing tells who is to set a key. In the store in which the ranks of a world have met it is one of them. A store that a
program makes beside its groups may have clients in any world (vLLM's ``StatelessProcessGroup``, a registry): then the
wait is for processes outside, unless ranks of one world alone are seen to wait there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.stacks.waits import read_connection
from hangwatch.model.collectives import DEFAULT_GROUP
from hangwatch.model.numbers import world_of

#: The remote end of the connection that a read or poll is on, as ``sources.proc.blocking`` writes it.
_REMOTE = re.compile(r"^socket:\[\d+\] to \S+:(\d+)$")


def with_outside_stores(views: Mapping[int, RankView]) -> dict[int, RankView]:
    """Return the views with waits marked ``outside`` for a key that another world may set, and with waits to make a store.

    A rank is in a world if the default group of any process has it: its own beat may be older than that.
    """
    groups = ((r, p.group) for r, v in views.items() for p in v.capture.progress or ())
    worlds = {g.key: g.members for r, g in groups if g.description == DEFAULT_GROUP and r in g.members}
    placed = {rank for members in worlds.values() for rank in members}
    ports = {r: _port(v) for r, v in views.items() if v.wait is not None and v.wait.kind == "store"}
    found = dict(views)
    for rank in placed & views.keys():
        view = views[rank]
        if view.wait is None and (connection := read_connection(view.frames)) is not None:
            found[rank] = replace(view, wait=connection)
        elif view.wait is not None and rank in ports and not _is_of_own_world(view, ports):
            found[rank] = replace(view, wait=replace(view.wait, outside=True))
    return found


def _is_of_own_world(view: RankView, ports: Mapping[int, int | None]) -> bool:
    """True if only ranks of its own world can set the key: it is their store, or several of them, and no others, are in it."""
    if not view.capture.processes or view.store is not None:
        return True  # there is only a stack, or it is seen who is connected to the store
    port = ports[view.rank]
    if port is None:
        return False
    if port == view.capture.identity.meeting_port:
        return True
    there = {rank for rank, other in ports.items() if other == port}
    return len(there) > 1 and len({world_of(rank) for rank in there}) == 1


def _port(view: RankView) -> int | None:
    """Return the port of the store that a rank awaits an answer of, by its last sample in such a read; None if not known."""
    found = (_REMOTE.match(p.blocked_on or "") for p in reversed(view.capture.processes))
    return next((int(match.group(1)) for match in found if match is not None), None)
