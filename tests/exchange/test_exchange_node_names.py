"""Nodes of one name: told apart by their keys, in everything that another node shows of them."""

from __future__ import annotations

import msgspec

from hangwatch.agent.fleet.scope import rename_node, tell_apart, tell_worlds_apart
from hangwatch.model.numbers import guest_number
from hangwatch.sources.discovery.roles import Roles
from worlds import rank, world


def test_a_name_that_is_one_nodes_alone_is_kept() -> None:
    """Nothing is added where nothing has to be told apart."""
    assert tell_apart("alpha", {"beta.77aa": "beta", "gamma.88bb": "gamma"}) == {
        "beta.77aa": "beta",
        "gamma.88bb": "gamma",
    }


def test_nodes_of_one_name_are_told_apart() -> None:
    """Every machine is called localhost: this one keeps the name, the others get a part of their keys."""
    called = tell_apart("localhost", {"localhost.77aa0000": "localhost", "localhost.88bb0000": "localhost"})
    assert called == {"localhost.77aa0000": "localhost.77aa", "localhost.88bb0000": "localhost.88bb"}


def test_keys_that_begin_alike_are_shown_whole() -> None:
    """What is cut off must not make two of them one."""
    keys = {"n.77aa1": "n", "n.77aa2": "n"}
    assert tell_apart("m", keys) == {"n.77aa1": "n.77aa1", "n.77aa2": "n.77aa2"}


def test_a_capture_says_the_name_everywhere() -> None:
    """Ranks and job of a node that is called otherwise."""
    one = rank(0, ())
    capture = world(msgspec.structs.replace(one, identity=msgspec.structs.replace(one.identity, node="localhost")))
    renamed = rename_node(capture, "localhost.77aa")
    assert [r.identity.node for r in renamed.ranks] == ["localhost.77aa"]
    assert renamed.job.nodes == ("localhost.77aa",)
    assert rename_node(renamed, "localhost.77aa") is renamed


def test_engines_of_two_nodes_that_have_one_name_are_told_apart() -> None:
    """Each node has called its own one so. The ranks of one engine have one name, and it stays at the next capture."""
    roles = Roles()
    numbers = [guest_number("engine on b", 0), guest_number("engine on b", 1), guest_number("engine on c", 0)]
    ranks = [rank(number, ()) for number in (0, *numbers)]
    identities = [msgspec.structs.replace(one.identity, world="engine" * (one.rank > 0), world_rank=0) for one in ranks]
    capture = world(*(msgspec.structs.replace(r, identity=i) for r, i in zip(ranks, identities, strict=True)))
    for _ in range(2):
        named = tell_worlds_apart(capture, roles)
        assert [one.identity.world for one in named.ranks] == ["", "engine", "engine", "engine-2"]
