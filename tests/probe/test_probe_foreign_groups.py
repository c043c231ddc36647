"""What the probe says of groups that ``new_group`` did not make, on real groups of torch, and of those that it made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import msgspec
import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from hangwatch.model.beats import BeatGroup
from hangwatch.probe.groups import GroupTable


@pytest.fixture
def home() -> Iterator[dist.TCPStore]:
    """The store of a world of one rank, which is there."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield store
    dist.destroy_process_group()


def described() -> tuple[GroupTable, dict[str, BeatGroup]]:
    """The table after one look, and its groups by name."""
    table = GroupTable(SimpleNamespace(_world=c10d._world), torch, [], lambda: b"")
    rows = [msgspec.convert(json.loads(row), BeatGroup) for row in table.render()]
    return table, {one.name: one for one in rows}


def make(store: dist.Store, name: str) -> None:
    """A group as libraries make it for a trainer and an engine: by the helper, with numbers of its own."""
    group, _ = c10d._new_process_group_helper(
        1, 0, [], "gloo", dist.PrefixStore(name, store), group_name=name, timeout=c10d.default_pg_timeout
    )
    c10d._world.pg_group_ranks[group] = {0: 0}


def test_groups_of_new_group_need_no_more_words(home: dist.TCPStore) -> None:
    """The world and what is made over it have their members in torch's record, and the beat of a large job stays small."""
    dist.new_group([0])
    dist.new_group([0], use_local_synchronization=True)
    table, groups = described()
    assert table.store == f"tcp://127.0.0.1:{home.port}"
    assert len(groups) == 3
    assert all(one.place is None and not one.foreign for one in groups.values())


@pytest.mark.parametrize("elsewhere", [True, False], ids=["another-store", "the-world's-store"])
def test_a_group_of_the_helper_says_where_its_members_met(home: dist.TCPStore, elsewhere: bool) -> None:
    """One that met in another store has foreign numbers, though its number 0 is rank 0 as well."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if elsewhere else home
    make(store, "weights")
    _, groups = described()
    found = groups["weights"]
    assert (found.place, found.size, found.foreign) == (0, 1, elsewhere)
    assert found.store == f"tcp://127.0.0.1:{store.port}"


def test_it_is_found_out_without_asking_the_store(home: dist.TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call that goes over the network is made: the rank that keeps the store may be the one that hangs."""
    make(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), "weights")

    def refused(name: str) -> Callable[..., None]:
        def call(*_: object, **__: object) -> None:
            raise AssertionError(f"asked the store: {name}")

        return call

    for kind in (dist.TCPStore, dist.PrefixStore):
        for name in ("get", "wait", "check", "add", "num_keys", "compare_set", "multi_get"):
            monkeypatch.setattr(kind, name, refused(name), raising=False)
    _, groups = described()
    assert groups["weights"].foreign
