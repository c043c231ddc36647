"""The table of groups over recorders and a torch of our own making: what no machine without GPUs would show."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from hangwatch.model.beats import BeatGroup
from hangwatch.probe import groups
from hangwatch.probe.groups import GroupTable
from hangwatch.probe.recorder import Recorder


class FakeGroup:
    """A process group: its backends by device, and what torch would say of it."""

    def __init__(self, description: str = "", **backends: Any) -> None:
        self.group_desc = description
        self.backends = backends

    def _get_backend(self, device: str) -> Any:
        return self.backends[device]

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 2


def backend(sequence: int, **more: Any) -> SimpleNamespace:
    """A backend object with its own count of operations."""
    return SimpleNamespace(_get_sequence_number_for_group=lambda: sequence, **more)


class World:
    """A torch with its recorders, a clock, and the table over them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(groups, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.world = SimpleNamespace(
            pg_names={}, pg_group_ranks={}, pg_backend_config={}, group_count=0, default_pg=None
        )
        self.status: dict[str, dict[int, tuple[int, int]]] = {"nccl": {}, "gloo": {}}
        self.entries: list[dict[str, Any]] = []
        self.entries_read = 0
        recorders = [self._recorder(name) for name in ("nccl", "gloo")]
        levels = SimpleNamespace(DETAIL="detail")
        self.debug = "off"
        c10d = SimpleNamespace(_world=self.world, DebugLevel=levels, get_debug_level=lambda: self.debug)
        self.table = GroupTable(c10d, SimpleNamespace(device=str), recorders, self._read_entries)

    def add(self, group: FakeGroup, name: str, ranks: tuple[int, ...], config: str) -> FakeGroup:
        """Create a group, as ``new_group`` records it."""
        self.world.pg_names[group] = name
        self.world.pg_group_ranks[group] = {rank: place for place, rank in enumerate(ranks)}
        self.world.pg_backend_config[group] = config
        self.world.group_count += 1
        return group

    def remove(self, group: FakeGroup) -> None:
        """Destroy a group."""
        for record in (self.world.pg_names, self.world.pg_group_ranks, self.world.pg_backend_config):
            del record[group]

    def record(self, pg_id: int, name: str, sequence: int, retired: bool) -> None:
        """One entry of the Gloo recorder."""
        self.entries.append(
            {
                "collective_seq_id": sequence,
                "is_p2p": False,
                "pg_id": pg_id,
                "process_group": [name, ""],
                "retired": retired,
            }
        )

    def rows(self, after_s: float = 0.5) -> list[BeatGroup]:
        """The next beat's groups, decoded as the agent does."""
        self.now += after_s
        return [msgspec.json.decode(row, type=BeatGroup) for row in self.table.render()]

    def _recorder(self, name: str) -> Recorder:
        def status(*, includeCollectives: bool) -> bytes:
            del includeCollectives
            found = {
                str(pg_id): {
                    "last_enqueued_collective": str(enqueued),
                    "last_started_collective": "-1",
                    "last_completed_collective": str(completed),
                }
                for pg_id, (enqueued, completed) in self.status[name].items()
            }
            return json.dumps({"pg_config": {"": {}}, "pg_status": found}).encode()

        return Recorder(name, status, status)

    def _read_entries(self) -> bytes:
        self.entries_read += 1
        return json.dumps({"entries": self.entries}, separators=(",", ":")).encode()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A torch without groups."""
    return World(monkeypatch)


def test_lagging_number_is_put_right_though_nothing_moves(world: World) -> None:
    """Gloo says 3 of 5 and stays there; every entry is retired: all five are done, found once and not asked for again."""
    world.add(FakeGroup(cpu=backend(5)), "0", (0, 1), "cpu:gloo")
    world.status["gloo"] = {0: (5, 3)}
    world.record(0, "0", 5, retired=True)
    assert [(row.pg_id, row.enqueued, row.completed) for row in world.rows()] == [(0, 5, 3)]
    rows = [world.rows()[0] for _ in range(6)]
    assert (rows[-1].enqueued, rows[-1].completed) == (5, 5)
    read = world.entries_read
    assert read <= 4
    world.status["gloo"] = {0: (5, 5)}
    assert [world.rows()[0].completed for _ in range(50)] == [5] * 50
    assert world.entries_read == read


def test_group_is_told_by_the_address_of_its_object(world: World) -> None:
    """By which a stack that is read from outside has it."""
    group = world.add(FakeGroup(cpu=backend(0)), "0", (0, 1), "cpu:gloo")
    assert [row.address for row in world.rows()] == [id(group)]


def test_group_used_through_both_backends_has_a_row_for_each(world: World) -> None:
    """NCCL and Gloo number their groups apart: one id may mean two groups, and both are distinguished."""
    world.add(FakeGroup(cuda=backend(9, uid=1), cpu=backend(2)), "0", (0, 1), "cpu:gloo,cuda:nccl")
    world.add(FakeGroup(cuda=backend(4, uid=0), cpu=backend(0)), "1", (1, 0), "cpu:gloo,cuda:nccl")
    world.status = {"nccl": {1: (9, 8), 0: (4, 4)}, "gloo": {1: (2, 2)}}
    world.record(1, "0", 2, retired=True)
    rows = {(row.name, row.backend): (row.ranks, row.pg_id, row.enqueued, row.completed) for row in world.rows()}
    assert rows == {
        ("0", "nccl"): ((0, 1), 1, 9, 8),
        ("0", "gloo"): ((0, 1), 1, 2, 2),
        ("1", "nccl"): ((1, 0), 0, 4, 4),
    }


def test_nothing_recorded_is_distinguished_from_not_known(world: World) -> None:
    """No operation yet is a fact only while every id in the recorder is known to be another group's."""
    world.add(FakeGroup(cpu=backend(1)), "0", (0, 1), "cpu:gloo")
    world.add(FakeGroup("later", cpu=backend(0)), "1", (0, 1), "cpu:gloo")
    assert [(row.pg_id, row.enqueued) for row in world.rows()] == [(None, 0), (None, 0)]
    world.status["gloo"] = {0: (1, 1)}
    world.record(0, "0", 1, retired=True)
    assert [(row.pg_id, row.enqueued) for row in world.rows()] == [(0, 1), (None, 0)]
    world.status["gloo"][7] = (3, 3)  # its entries have been overwritten already
    assert [(row.pg_id, row.enqueued) for row in world.rows()] == [(0, 1), (None, -1)]
    world.debug = "detail"
    world.record(7, "", 3, retired=True)
    world.status["gloo"][7] = (4, 4)
    assert [(row.pg_id, row.enqueued) for row in world.rows()] == [(0, 1), (None, -1)]
    assert world.table.nameless


def test_a_backend_without_a_name_is_none_of_the_listed_groups(world: World) -> None:
    """A library makes one itself (torchft 0.2 does, for each quorum); where torch hides all names it may be any of them."""
    world.add(FakeGroup(cpu=backend(0)), "0", (0, 1), "cpu:gloo")
    world.status["gloo"] = {3: (8, 7)}
    world.record(3, "", 8, retired=False)
    assert [(row.pg_id, row.enqueued) for row in world.rows()] == [(None, 0)]
    assert not world.table.nameless


def test_dead_namesake_lends_no_numbers(world: World) -> None:
    """A new group under an old name starts at nothing, and gets its own id with its first operation."""
    old = world.add(FakeGroup(cpu=backend(5)), "0", (0, 1), "cpu:gloo")
    world.status["gloo"] = {0: (5, 5)}
    world.record(0, "0", 5, retired=True)
    assert world.rows()[0].pg_id == 0
    world.remove(old)
    world.add(FakeGroup(cpu=backend(0)), "0", (0, 1), "cpu:gloo")
    (row,) = world.rows()
    assert (row.pg_id, row.enqueued, row.completed) == (None, 0, 0)
    world.status["gloo"][1] = (1, 1)
    world.record(1, "0", 1, retired=True)
    new = next(iter(world.world.pg_names))
    new.backends["cpu"] = backend(1)
    (row,) = world.rows()
    assert (row.pg_id, row.enqueued, row.completed) == (1, 1, 1)


def test_namesake_that_died_unseen_lends_no_numbers_either(world: World) -> None:
    """Where the old group came and went between two beats, the new one's own count of operations speaks against it."""
    world.add(FakeGroup(cpu=backend(0)), "0", (0, 1), "cpu:gloo")
    world.status["gloo"] = {0: (5, 5)}
    world.record(0, "0", 5, retired=True)
    (row,) = world.rows()
    assert (row.pg_id, row.enqueued) == (None, 0)


def test_group_still_being_made_is_looked_at_again(world: World) -> None:
    """torch notes the name before the members: a beat in between shows none, the next one all."""
    group = world.add(FakeGroup(cpu=backend(0)), "0", (), "cpu:gloo")
    assert world.rows()[0].ranks == ()
    world.world.pg_group_ranks[group] = {3: 1, 5: 0}
    assert world.rows()[0].ranks == (5, 3)


def test_destroyed_group_is_reported_as_long_as_it_has_an_operation_in_flight(world: World) -> None:
    """torch forgets a group before Gloo's destructor has awaited what is pending; afterwards it is gone."""
    group = world.world.default_pg = world.add(FakeGroup(cpu=backend(6)), "0", (0, 1), "cpu:gloo")
    world.status["gloo"] = {0: (6, 5)}
    world.record(0, "0", 6, retired=False)
    row = world.rows()[0]
    assert row.enqueued > row.completed
    world.remove(group)
    world.world.default_pg = None
    (row,) = world.rows()
    assert row.enqueued > row.completed
    assert row.unmoved_s == pytest.approx(0.5)
    assert world.table.initialized
    world.status["gloo"] = {0: (6, 6)}
    assert world.rows() == []
    assert not world.table.initialized


def test_destroyed_group_is_forgotten_in_a_job_that_goes_on_with_another(world: World) -> None:
    """An operation that failed may stay unfinished in the record for good."""
    group = world.world.default_pg = world.add(FakeGroup(cpu=backend(6)), "0", (0, 1), "cpu:gloo")
    world.status["gloo"] = {0: (6, 5)}
    world.record(0, "0", 6, retired=False)
    world.rows()
    world.remove(group)
    world.world.default_pg = world.add(FakeGroup(cpu=backend(0)), "again", (0, 1), "cpu:gloo")
    assert [row.name for row in world.rows()] == ["again"]


def test_a_standing_group_says_for_how_long(world: World) -> None:
    """Time since the last move grows from beat to beat and starts anew with a move."""
    world.add(FakeGroup(cuda=backend(2, uid=0)), "0", (0, 1), "cuda:nccl")
    world.status["nccl"] = {0: (2, 1)}
    assert world.rows()[0].unmoved_s == pytest.approx(0.0)
    assert world.rows(4.0)[0].unmoved_s == pytest.approx(4.0)
    world.status["nccl"] = {0: (2, 2)}
    assert world.rows()[0].unmoved_s == pytest.approx(0.0)
