"""Nodes, and worlds on them, by names that tell them apart. Pure.

Hosts may all be called ``localhost``, containers by the name of their host, engines by the program that they run.
In the exchange a node has a key of its own (``member.name_node``). People read its name, and where two have one name, the key's
next part behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from hangwatch.model.capture import Capture
from hangwatch.model.numbers import is_guest
from hangwatch.sources.discovery.roles import Roles

_replace = msgspec.structs.replace
#: So much of a key tells nodes of one name apart, where it does.
_SHORT = 4


def tell_apart(own: str, nodes: Mapping[str, str]) -> dict[str, str]:
    """What to call each of the other nodes: its name, unless this node or another one has it, too.

    ``own``: this node's name, which it keeps. ``nodes``: names by keys, which begin with the name.
    """
    several = Counter([own, *nodes.values()])
    found = {}
    for key, name in nodes.items():
        rest = key.removeprefix(name).lstrip(".")
        found[key] = name if several[name] == 1 or not rest else f"{name}.{rest[:_SHORT]}"
    taken = Counter([own, *found.values()])
    return {key: called if taken[called] == 1 else key for key, called in found.items()}


def tell_worlds_apart(capture: Capture, roles: Roles) -> Capture:
    """The capture of several nodes, each of which has named the worlds of its processes by itself; ``roles`` has their names."""
    ranks = tuple(
        _replace(rank, identity=_replace(rank.identity, world=roles.name(rank.identity.world, rank.rank)))
        if rank.identity.world and is_guest(rank.rank)
        else rank
        for rank in capture.ranks
    )
    return capture if ranks == capture.ranks else _replace(capture, ranks=ranks)


def rename_node(capture: Capture, called: str) -> Capture:
    """The capture of one node, with the node called so."""
    names = {rank.identity.node for rank in capture.ranks} | {facts.node for facts in capture.nodes}
    if names <= {called, ""}:
        return capture
    ranks = tuple(_replace(rank, identity=_replace(rank.identity, node=called)) for rank in capture.ranks)
    nodes = tuple(_replace(facts, node=called) for facts in capture.nodes)
    return _replace(capture, ranks=ranks, nodes=nodes, job=_replace(capture.job, nodes=(called,)))
