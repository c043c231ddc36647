"""Whose flight record counts."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from hangwatch.agent.capturing import capture
from hangwatch.agent.capturing import records as flight_records
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.collectives import FlightRecord, Group, GroupProgress, Operation


def beat(pid: int, age_s: float, *, initialized: bool, server: str | None = "/run/server") -> Beat:
    """The last beat of one rank."""
    at_ns = time.time_ns() - int(age_s * 1e9)
    return Beat(1, pid, 1, 1, at_ns, pid, 4, initialized=initialized, server=server)


def test_record_of_a_rank_whose_beat_is_late_counts_whatever_the_beat_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank may have made its groups and then held the interpreter: its beat is of before, its recorder of now."""

    async def fetch(beat: Beat, *, rank: int, call_sites: bool) -> Gap:
        assert not call_sites
        return Gap("flight recorder", "a test", rank)

    monkeypatch.setattr(flight_records, "fetch_flight", fetch)
    beats = {
        1: beat(1, 0.1, initialized=True),
        2: beat(2, 0.1, initialized=False),
        3: beat(3, 9.0, initialized=False),
        4: beat(4, 9.0, initialized=False, server=None),
    }
    ranks = [RankIdentity(pid, pid, 1.0) for pid in (1, 2, 3, 4, 5)]
    records = asyncio.run(flight_records.fetch_records(ranks, beats, call_sites=False))
    assert list(records) == [1, 3]


def test_late_beat_and_an_empty_recorder_are_a_rank_without_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy node the beat of a rank that waits for its first group is late; that its recorder is empty says nothing more."""
    group = Group("1", (0, 1), "everyone")

    async def fetch(beat: Beat, *, rank: int, call_sites: bool) -> FlightRecord:
        del beat, call_sites
        progress = (GroupProgress(group, 4, 4, 4),) if rank == 2 else ()
        return FlightRecord(at_ns=1, source="json", version="2.10", operations=(), progress=progress)

    monkeypatch.setattr(flight_records, "fetch_flight", fetch)
    beats = {pid: beat(pid, 9.0, initialized=False) for pid in (1, 2)}
    ranks = [RankIdentity(pid, pid, 1.0) for pid in (1, 2)]
    records = asyncio.run(flight_records.fetch_records(ranks, beats, call_sites=False))
    assert list(records) == [2]


@pytest.mark.parametrize(("ahead_s", "age_s"), [(90_000.0, 40.0), (-50.0, 50.0)], ids=["set-back", "as-it-was"])
def test_an_operation_in_flight_is_as_old_as_it_is_though_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch, ahead_s: float, age_s: float
) -> None:
    """Its time is still to come then; the beat has from a steady clock for how long nothing has moved."""
    now_ns, group = time.time_ns(), Group("0", (0, 1), "default_pg")
    operation = Operation(7, group, 7, "all_reduce", False, now_ns + int(ahead_s * 1e9), backend="gloo")

    async def fetch(beat: Beat, *, rank: int, call_sites: bool) -> FlightRecord:
        del beat, rank, call_sites
        return FlightRecord(now_ns, "json", "2.10", (operation,), (GroupProgress(group, 7, 7, 6),))

    monkeypatch.setattr(flight_records, "fetch_flight", fetch)
    still = BeatGroup("0", (0, 1), 0, "default_pg", unmoved_s=40.0)
    beats = {1: msgspec.structs.replace(beat(1, 0.1, initialized=True), groups=(still,))}
    records = asyncio.run(flight_records.fetch_records([RankIdentity(1, 1, 1.0)], beats, call_sites=False))
    found = records[1]
    assert isinstance(found, FlightRecord)
    assert (found.at_ns, found.at_ns - found.operations[0].created_ns) == (now_ns, age_s * 1e9)


def test_groups_are_named_by_their_objects_where_all_ranks_give_them_one_name() -> None:
    """What torch's ``new_group`` did not make may have another name in each process, so it is left without one."""
    said = beat(1, 0.1, initialized=True)
    groups = (
        BeatGroup("0", (0, 1), description="default_pg", address=10),
        BeatGroup("3", (0, 1), address=11),
        BeatGroup("weights", (0, 1), address=12, place=0, size=2),
        BeatGroup("4", (0, 1)),
    )
    assert capture._group_names(msgspec.structs.replace(said, groups=groups)) == {10: "default_pg", 11: "3"}
    assert capture._group_names(None) == {}
