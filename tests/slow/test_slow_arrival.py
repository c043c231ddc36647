"""Who was late, from simulated arrivals: the right rank where one is, and nobody where waits have other reasons."""

from __future__ import annotations

import random
from functools import cache

import msgspec
import pytest
from arrivals import SimulatedJob, Work, slow

from hangwatch.model.collectives import Group
from hangwatch.slow.arrival import find_late
from hangwatch.slow.flight import make_streams
from hangwatch.slow.timeline import Call
from worlds import operation, rank

SHAPES = ["ddp", "sync", "fsdp", "tp"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("size", "share"), [(4, 0.1), (4, 0.5), (8, 0.2), (16, 0.1)])
def test_the_slow_rank_is_named(shape: str, size: int, share: float) -> None:
    """Its partner in tensor parallel, which is late in the data parallel group too, is not."""
    culprit = size - 3
    found = find_late(SimulatedJob(size, shape, slow(culprit, share), seed=1).run())
    assert found is not None
    assert found.rank == culprit
    assert culprit not in found.waiting
    assert found.lost == pytest.approx(share / (1 + share), abs=0.06)


def test_64_ranks() -> None:
    """As many as a small cluster has."""
    found = find_late(SimulatedJob(64, "sync", slow(40, 0.2)).run())
    assert found is not None
    assert found.rank == 40


@pytest.mark.parametrize("shape", SHAPES)
def test_a_rank_may_become_slow(shape: str) -> None:
    """The steps since then are counted."""
    found = find_late(SimulatedJob(8, shape, slow(5, 0.3, onset=25)).run())
    assert found is not None
    assert found.rank == 5
    assert 20 <= found.steps <= 40
    assert found.lost == pytest.approx(0.2, abs=0.08)


@cache
def _length(step: int, one: int) -> float:
    return random.Random(f"{step} {one}").lognormvariate(0, 0.3)


def test_a_constant_delay_in_steps_that_vary() -> None:
    """All ranks take as long for a step, whatever that is, and one always 0.3 of a usual step more. Two clocks may differ so."""
    work: Work = lambda step, one: _length(step, 0) + (0.3 if one == 2 else 0.0)  # noqa: E731
    job = SimulatedJob(4, "ddp", work, noise=0.01).run()
    by_clock = {one_clock: find_late(job, one_clock=one_clock) for one_clock in (True, False)}
    assert {one_clock: found.rank for one_clock, found in by_clock.items() if found} == {True: 2, False: None}


@pytest.mark.parametrize("learning", [0.5, 2.0, 5.0])
def test_other_work_by_design(learning: float) -> None:
    """Rank 0 learns from what the others have done meanwhile: they wait for it, and it waits for them."""
    acts: Work = lambda _, one: 1.0 if one else 0.01  # noqa: E731
    learns: Work = lambda step, one: 0.0 if one else learning * _length(step, 0)  # noqa: E731
    found = find_late(SimulatedJob(4, "sync", acts, learns).run())
    assert found is not None
    assert found.rank is None


#: Why ranks wait though none is slow: ``work`` and ``before`` of the simulation.
HEALTHY: dict[str, tuple[Work | None, Work | None, float]] = {
    "noise": (None, None, 0.1),
    "turns": (lambda step, one: 1.3 if step % 4 == one else 1.0, None, 0.03),
    "long turns": (lambda step, one: 1.3 if step // 20 % 4 == one else 1.0, None, 0.03),
    "evaluation on rank 0": (None, lambda step, one: 3.0 if one == 0 and step % 5 == 4 else 0.0, 0.03),
    "checkpoints": (None, lambda step, one: 8.0 if one == 0 and step % 25 == 20 else 0.0, 0.03),
    "accumulation": (lambda step, _: 4.0 if step % 4 == 3 else 1.0, None, 0.03),
    "uneven lengths": (_length, None, 0.03),
    "a slow while": (lambda step, one: 1.4 if one == 1 and 30 <= step < 40 else 1.0, None, 0.03),
    "two slow ranks": (lambda _, one: 1.3 if one in {1, 2} else 1.0, None, 0.03),
}


@pytest.mark.parametrize("why", HEALTHY)
@pytest.mark.parametrize("shape", SHAPES)
def test_nobody_is_named(shape: str, why: str) -> None:
    """Waits without a slow rank; nor if a rank's clock is ahead."""
    work, before, noise = HEALTHY[why]
    for size in (4, 8):
        job = SimulatedJob(size, shape, before=before, noise=noise)
        job.work = work or job.work
        streams = job.run()
        found = find_late(streams)
        assert found is None or found.rank is None
        streams[2] = [msgspec.structs.replace(call, at_ns=call.at_ns + 15_000_000) for call in streams[2]]
        ahead = find_late(streams)
        assert ahead is None or ahead.rank is None


def _pipeline(replicas: int, stage_work: tuple[float, ...], slow_rank: int | None) -> dict[int, list[Call]]:
    """Calls, with ends, of one micro-batch a step through each replica's stages; then all replicas of a stage reduce."""
    noise, stages = random.Random(3), len(stage_work)
    streams: dict[int, list[Call]] = {one: [] for one in range(replicas * stages)}
    clock = dict.fromkeys(streams, 0.0)

    def join(name: str, seq: int, members: tuple[int, ...], p2p: bool) -> None:
        left = max(clock[one] for one in members) + 1e5
        for one in members:
            streams[one].append(Call((name, members), seq, members, name, round(clock[one]), round(left), None, p2p))
            clock[one] = left

    for step in range(40):
        for replica in range(replicas):
            for stage, work in enumerate(stage_work):
                me = replica * stages + stage
                if stage:
                    join("p2p", step * stages + stage, (me - 1, me), True)
                clock[me] += 1e7 * work * noise.lognormvariate(0, 0.03) * (1.5 if me == slow_rank else 1)
        for stage in range(stages):
            join("dp", step, tuple(range(stage, replicas * stages, stages)), False)
    return streams


@pytest.mark.parametrize("slow_rank", [None, 5])
def test_stages_of_a_pipeline(slow_rank: int | None) -> None:
    """A long last stage is design; a slow rank of a stage is named, not those that wait for it."""
    found = find_late(_pipeline(4, (1.0, 1.0, 2.0), slow_rank))
    assert found is not None
    assert found.rank == slow_rank


@pytest.mark.parametrize(("second", "named"), [((), 2), ((1,), None), ((1, 2), None)])
def test_stages_that_no_record_links(second: tuple[int, ...], named: int | None) -> None:
    """Gloo's records have no sends: all stages of a slow rank's replica are late. A rank is named if no other is late."""
    streams: dict[int, list[Call]] = {}
    for stage, late in enumerate(((1,), second)):
        job = SimulatedJob(4, "sync", lambda _, one, late=late: 1.3 if one in late else 1.0, seed=stage)
        for one, calls in job.run().items():
            members = tuple(2 * member + stage for member in range(4))
            streams[2 * one + stage] = [msgspec.structs.replace(call, group=stage, members=members) for call in calls]
    found = find_late(streams)
    assert found is not None
    assert found.rank == named


def test_a_clock_that_steps_back() -> None:
    """The calls of a rank keep their order."""
    streams = SimulatedJob(4, "sync", slow(2, 0.3)).run()
    back = {
        one: [msgspec.structs.replace(c, at_ns=c.at_ns - 10**9 * (c.seq > 30)) for c in streams[one]] for one in streams
    }
    found = find_late(back, one_clock=True)
    assert found is not None
    assert found.rank in {2, None}


def test_records_that_do_not_tell() -> None:
    """NCCL's hosts run ahead, and sends have no common number: no calls. Gloo's collectives have some."""
    group = Group("0", (0, 1))
    one = operation(1, group, 1)
    gloo = msgspec.structs.replace(one, backend="gloo")
    sent = msgspec.structs.replace(gloo, p2p=True)
    assert make_streams([rank(0, (msgspec.structs.replace(one, backend="nccl"),))]) == {}
    assert make_streams([rank(0, (gloo, sent))]) == {}
    assert list(make_streams([rank(0, (gloo,))])) == [0]
    assert find_late(make_streams([rank(0, (gloo,)), rank(1, (gloo,))])) is None
