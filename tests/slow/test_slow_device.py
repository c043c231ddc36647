"""Who was late by how long operations took on the device: the rank whose take least, whatever the ranks' watchdogs saw when."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from arrivals import STEP_NS, SimulatedJob, Work, as_timed, look, slow

from hangwatch.model.collectives import DeviceTime, Group, Operation
from hangwatch.postmortem.artifacts import read_artifacts
from hangwatch.postmortem.verdict import diagnose_artifacts
from hangwatch.slow.arrival import LateRank
from hangwatch.slow.flight import make_calls
from hangwatch.slow.follow import Following, Process, Windows
from hangwatch.slow.timeline import Call
from hangwatch.slow.words import describe
from hangwatch.sources.flight.recorder import parse_timed
from nccl_dumps import nccl_dump, nccl_entry

STEPS = 60


def follow(shape: str, work: Work, looks: int = 3, size: int = 4) -> LateRank | None:
    """Who is found in a job that is looked at each 20 steps; what is in flight comes with the next look."""
    streams = as_timed(SimulatedJob(size, shape, work, steps=STEPS + 20 * looks).run())
    windows, following = Windows(), Following()
    windows.keep([Process(rank, rank, 0.0) for rank in streams])
    for at in range(1, looks + 1):
        for rank, calls in streams.items():
            done = len(calls) * (STEPS + 20 * at) // (STEPS + 20 * looks)
            operations, times = [], []
            for place, call in enumerate(calls[: done + 2]):
                group = Group(str(call.group), call.members, call.name)
                operations.append(Operation(place, group, call.seq, "all_reduce", True, call.at_ns, backend="nccl"))
                ended_ns = call.left_ns if place < done else None
                times.append(DeviceTime(ended_ns, ended_ns - call.at_ns) if ended_ns is not None else None)
            windows.add(Process(rank, rank, 0.0), operations, times)
        look(windows, following)
    return following.found


@pytest.mark.parametrize(("shape", "share"), [("ddp", 0.4), ("sync", 0.4), ("fsdp", 0.4), ("fsdp", 0.1)])
def test_the_rank_that_waits_least(shape: str, share: float) -> None:
    """It is late by at least so much, and never by more than it is, also if it is a little late at each operation."""
    found = follow(shape, slow(2, share))
    assert found is not None
    assert (found.rank, found.waiting) == (2, (0, 1, 3))
    assert found.late_ns < 1.1 * share * STEP_NS
    assert found.most_ns >= max(found.late_ns, 0.8 * share * STEP_NS)
    assert f"{found.late_ns / 1e6:.3g}" in describe(found).says


def test_groups_that_are_equally_large() -> None:
    """Tensor parallel groups as large as data parallel ones: a rank that is late in its row makes its column late."""
    assert follow("grid", lambda _step, _rank: 1.0, size=9) is None
    found = follow("grid", slow(4, 0.3), size=9)
    assert found is not None
    assert (found.rank, found.waiting) == (4, (1, 7))


def test_a_delay_that_is_waited_for_again_counts_once() -> None:
    """Reductions overlap with work: a delay of 2.7 % of a step, too little to speak of, shows in each of four."""
    assert follow("ddp", slow(2, 0.03)) is None


@pytest.mark.parametrize("shape", ["ddp", "sync", "fsdp"])
def test_nobody_waits_least(shape: str) -> None:
    """Noise, and ranks that take turns."""
    assert follow(shape, lambda _step, _rank: 1.0) is None
    assert follow(shape, lambda step, rank: 1.3 if step % 4 == rank else 1.0) is None


def test_ends_that_are_found_at_once() -> None:
    """A watchdog that looks seldom says nothing of how long steps take; it is no reason to fail."""
    group = Group("0", (0, 1, 2))
    windows, following = Windows(), Following()
    windows.keep([Process(rank, rank, 0.0) for rank in group.ranks])
    operations = [Operation(at, group, at + 1, "all_reduce", True, 1, backend="nccl") for at in range(60)]
    for rank in group.ranks:
        windows.add(Process(rank, rank, 0.0), operations, [DeviceTime(10**9, 1 if rank == 1 else 10**6)] * 60)
    look(windows, following)
    assert following.named is None or following.named.lost < 1


def test_what_may_end_early_for_one_member() -> None:
    """A broadcast is over for its root when it has sent; that is no sign of who came last."""
    both = [Operation(0, Group("0", (0, 1)), 1, op, True, 1, backend="nccl") for op in ("broadcast", "barrier")]
    calls = make_calls(0, both, times=[DeviceTime(9, 5), DeviceTime(20, 6)])
    assert calls is not None
    assert [(call.at_ns, call.left_ns) for call in calls] == [(14, 20)]


def test_dumps(tmp_path: Path) -> None:
    """``hangwatch diagnose`` names it too. The rest of a record counts for nothing once an operation is not timed."""
    for rank, calls in as_timed(SimulatedJob(4, "sync", slow(2, 0.4), steps=STEPS).run()).items():
        entries = [_timed_entry(call, at) for at, call in enumerate(calls, 1)]
        entries[-2]["duration_ms"] = None
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps(nccl_dump(*entries)))
    found = diagnose_artifacts(read_artifacts(tmp_path, lambda _done, _total: None)).lateness
    assert found is not None
    assert (found.rank, found.waiting, found.of_steps) == (2, (0, 1, 3), STEPS - 3)


@pytest.mark.parametrize("late", [None, 3])
def test_sends_and_receives(tmp_path: Path, late: int | None) -> None:
    """A stage that works longer than the same one of other replicas is named; not those that wait to receive from it.

    Sends and receives that are launched together have no times of their own.
    """
    numbers = {
        name: str(at)
        for at, name in enumerate([("loss", 0), ("dp", 0), ("dp", 1), *(("p2p", r) for r in (0, 2, 4, 6))])
    }
    streams = as_timed(SimulatedJob(8, "pp", slow(late, 0.4) if late else lambda *_: 1.0, steps=STEPS).run())
    groups = {numbers[call.group]: ("", str(list(call.members))) for calls in streams.values() for call in calls}
    for rank, calls in streams.items():
        entries: list[dict[str, object]] = []
        for call in calls:
            group = {"group": (numbers[call.group], ""), "pg_id": int(numbers[call.group])}
            if call.name == "p2p":
                op = f"nccl:{'send' if call.seq % 2 == rank % 2 else 'recv'} 0{'->' if call.seq % 2 else '<-'}1"
                sent = nccl_entry(seq=call.seq, op=op, state="scheduled", record_id=len(entries), p2p=True, **group)
                entries += [sent, _timed_entry(call, len(entries) + 1, op="nccl:coalesced", sizes=(), **group)]
            else:
                entries.append(_timed_entry(call, len(entries), seq=call.seq, **group))
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps(nccl_dump(*entries, groups=groups)))
    found = diagnose_artifacts(read_artifacts(tmp_path, lambda _done, _total: None)).lateness
    assert (found.rank if found is not None else None) == late
    assert found is None or found.waiting == ((1, 5, 7) if late else ())


def _timed_entry(call: Call, at: int, **fields: object) -> dict[str, object]:
    assert call.left_ns is not None
    times = {"duration_ms": (call.left_ns - call.at_ns) / 1e6, "time_discovered_completed_ns": call.left_ns}
    return {**nccl_entry(**{"seq": at, "record_id": at, "created_ns": call.at_ns, **fields}), **times}


def test_times_of_a_dump() -> None:
    """The last operation is over, and torch has not retired it. Times that are no numbers of the clock are none."""
    entries = [
        {**nccl_entry(seq=1, created_ns=7), "duration_ms": 0.5},
        {**nccl_entry(seq=2, created_ns=7), "duration_ms": float("nan")},
        nccl_entry(seq=3, created_ns=7),
    ]
    timed = parse_timed({"entries": entries}, beat_groups=(), world_size=2)
    assert timed.times == (DeviceTime(9, 500_000), None, None)
    assert [one.op for one in timed.operations] == ["all_reduce"] * 3
    untimed = [nccl_entry(seq=1), "broken"]
    assert parse_timed({"entries": untimed}, beat_groups=(), world_size=2).times == ()
