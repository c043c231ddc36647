"""An open incident is reported again, under its id, once a later look at the same wait names a surer cause."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from hangwatch.agent.job.diagnose import explains_better
from hangwatch.agent.job.watch import watch_job
from hangwatch.causes.match import Level, Match
from hangwatch.config.settings import Settings
from hangwatch.diagnosis.verdict import Diagnosis, diagnose
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.incident import Incident
from hangwatch.outputs.bundle.bundle import read_bundle
from hangwatch.sources.discovery.found_jobs import FoundJob
from recorded import load

#: Rank 0 works while the others are at a barrier; in the last look, one native call of its keeps the GIL.
WORKS = load("rank0_work")
STALL_S = 2.0


def _holding(rank: RankCapture) -> RankCapture:
    """The rank whose main thread is found in one place, and whose probe has not got the GIL for long."""
    first, *rest = rank.stacks
    stacks = (first, *(msgspec.structs.replace(first, at_ns=one.at_ns) for one in rest))
    return msgspec.structs.replace(rank, stacks=stacks, beat_age_s=60.0)


HOLDS = msgspec.structs.replace(WORKS, ranks=tuple(_holding(rank) if rank.rank == 0 else rank for rank in WORKS.ranks))


def found(cause: str, level: Level, capture: Capture = WORKS) -> Diagnosis:
    """A diagnosis of a capture, with another first cause."""
    return replace(diagnose(capture), first=Match(cause, level, "Seen.", ()))


def test_only_what_goes_before_it_takes_the_place_of_a_cause() -> None:
    """A surer one, or one that explains it; neither a name, nor what others may look like too, nor what it has replaced."""
    reported = found("rank0-work", "strong")
    assert explains_better(found("gil-held", "strong"), reported)
    assert explains_better(found("straggler", "certain"), reported)
    assert not explains_better(found("blocked-io", "strong"), reported)
    assert not explains_better(found("compile-skew", "strong"), reported)
    assert not explains_better(found("rank0-work", "certain"), reported)
    assert not explains_better(found("gil-held", "likely"), found("rank0-work", "possible"))
    assert not explains_better(reported, found("gil-held", "strong"))
    assert not explains_better(replace(reported, first=None), reported)


def test_another_wait_is_another_matter() -> None:
    """The others are at their next barrier by now, or another rank is to blame."""

    def later(rank: RankCapture) -> RankCapture:
        flight = rank.flight
        if flight is None or rank.rank == 0:
            return rank
        operations = tuple(msgspec.structs.replace(o, seq=o.seq + 1) for o in flight.operations)
        return msgspec.structs.replace(rank, flight=msgspec.structs.replace(flight, operations=operations))

    moved = msgspec.structs.replace(WORKS, ranks=tuple(map(later, WORKS.ranks)))
    assert not explains_better(found("gil-held", "certain", moved), found("rank0-work", "strong"))
    assert not explains_better(found("gil-held", "certain", load("gil_held")), found("rank0-work", "strong"))


class Clock:
    """The time, which moves when told to; it begins with the capture."""

    def __init__(self) -> None:
        self.now_s = WORKS.at_ns / 1e9

    def monotonic(self) -> float:
        return self.now_s

    def time_ns(self) -> int:
        return int(self.now_s * 1e9)


class Scope:
    """What is captured: at first the rank that works, later the call that keeps the GIL, then the rank that works again."""

    def __init__(self) -> None:
        self.left = [WORKS, WORKS, HOLDS, HOLDS]

    async def capture(self) -> Capture:
        return self.left.pop(0) if self.left else WORKS

    async def call_sites(self, capture: Capture, ranks: Collection[int] | None) -> Capture:
        del ranks
        return capture

    async def hardware(self, capture: Capture, names: Collection[str] | None) -> Capture:
        del names
        return capture


@pytest.mark.asyncio
async def test_the_incident_is_renewed_once(tmp_path: Path) -> None:
    """One id; the bundle has the newer cause and the capture that shows it; and it stays so."""
    clock, scope, told = Clock(), Scope(), list[Incident]()

    async def announce(incident: Incident, _: Path | None) -> None:
        told.append(incident)

    watch = watch_job(WORKS.job, tmp_path, announce, settings=Settings(stall_after_s=STALL_S), clock=clock)
    watch.scope, watch.incidents.scope = scope, None
    identities = tuple(rank.identity for rank in WORKS.ranks)
    watch.update_ranks(FoundJob(WORKS.job, identities), clock.now_s)
    began_s = clock.now_s
    while clock.now_s < began_s + 60.0:
        beats = {
            one.pid: Beat(
                1, one.pid, 1, 1, clock.time_ns(), one.rank, 3, one.rank, True, groups=(_at_barrier(one.rank),)
            )
            for one in identities
        }
        await watch.tick(beats, clock.now_s)
        clock.now_s += 1.0
    assert not scope.left
    causes = [one.verdict.cause.id for one in told if one.verdict.cause is not None]
    assert causes == ["rank0-work", "gil-held"]
    assert len({one.id for one in told}) == 1
    incident, capture = read_bundle(tmp_path / "incidents" / told[0].id)
    assert incident is not None
    assert incident.verdict == told[-1].verdict
    assert diagnose(capture).first == diagnose(HOLDS).first


def _at_barrier(rank: int) -> BeatGroup:
    """What a beat says of the group: rank 0 has not come to the barrier that the others are in."""
    enqueued = 0 if rank == 0 else 1
    return BeatGroup("0", (0, 1, 2), 0, "default_pg", "gloo", enqueued, -1, 0, 30.0)
