"""The flight record of a rank that has no process group: before it has made one, and while its last one is destroyed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import pytest

from hangwatch.agent.capturing import records as flight_records
from hangwatch.model.beats import BEAT_VERSION, Beat, BeatGroup
from hangwatch.model.capture import Gap, RankIdentity
from hangwatch.model.collectives import FlightRecord, Group, Operation

EVERYONE = BeatGroup("1", (0, 1), 4, "everyone", "gloo", 7, -1, 7)


class Beats:
    """Rank 1 still has its group; rank 0 has none, and its process is not there to be sampled."""

    def read(self) -> tuple[dict[int, Beat], tuple[Gap, ...]]:
        """Both beats, as if written just now."""
        return {pid: self._beat(pid) for pid in (0, 1)}, ()

    def last_of(self, ranks: Iterable[RankIdentity]) -> dict[int, Beat]:
        """Nobody has left anything."""
        del ranks
        return {}

    @staticmethod
    def _beat(pid: int) -> Beat:
        groups = (EVERYONE,) if pid == 1 else ()
        return Beat(
            BEAT_VERSION, pid, 1, 9, time.time_ns() + 10**9, pid, 2, initialized=pid == 1, groups=groups, server="/s"
        )


@pytest.mark.parametrize("in_flight", [True, False])
def test_record_without_a_group_counts_if_it_has_something_in_flight(
    monkeypatch: pytest.MonkeyPatch, in_flight: bool
) -> None:
    """torch forgets a group before its destructor has awaited what is pending. Its members are then known from the others."""
    asked: dict[int, Beat] = {}

    async def fetch(beat: Beat, *, rank: int, call_sites: bool) -> FlightRecord | Gap:
        del call_sites
        asked[rank] = beat
        if rank == 1:
            return Gap("flight recorder", "not asked here", rank)
        operation = Operation(0, Group("1", (0, 1), "everyone"), 8, "all_reduce", not in_flight, created_ns=1)
        return FlightRecord(at_ns=1, source="json", version="2.10", operations=(operation,), progress=())

    monkeypatch.setattr(flight_records, "fetch_flight", fetch)
    ranks = [RankIdentity(rank, rank, 1.0, "node-0", rank) for rank in (0, 1)]
    records = asyncio.run(flight_records.fetch_records(ranks, Beats().read()[0], call_sites=False))
    assert [g.ranks for g in asked[0].groups] == [(0, 1)]
    assert asked[0].groups[0].pg_id is None
    assert asked[1].groups == (EVERYONE,)
    assert (0 in records) is in_flight
