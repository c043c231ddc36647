"""A job that is followed: what is kept of its records, and that two looks have to agree."""

from __future__ import annotations

import msgspec
import pytest
from arrivals import SimulatedJob, Work, look, slow

from hangwatch.model.collectives import Group, Operation
from hangwatch.slow.arrival import LateRank
from hangwatch.slow.follow import Following, Process, Window, Windows
from hangwatch.slow.timeline import Call, find_period

WORLD = Group("0", (0, 1, 2, 3))


def records(work: Work, steps: int, seed: int = 0) -> dict[int, list[Operation]]:
    """The operations of four ranks that reduce once a step."""
    job = SimulatedJob(4, "sync", work, seed=seed, steps=steps)
    return {rank: [to_operation(at, call) for at, call in enumerate(calls)] for rank, calls in job.run().items()}


def to_operation(at: int, call: Call) -> Operation:
    """The entry of a record, at a place, with a call."""
    return Operation(at, WORLD, call.seq, call.name, False, call.at_ns, backend="gloo")


def follow(work: Work, *, steps: int, every: int, ring: int = 2000) -> list[int | None]:
    """Who is found after each look at a job whose records are read every so many steps."""
    windows, following, found = Windows(), Following(), []
    processes = {rank: Process(rank, 100 + rank, 1.0) for rank in WORLD.ranks}
    whole = records(work, steps)
    for now in range(every, steps + 1, every):
        windows.keep(list(processes.values()))
        for rank, process in processes.items():
            windows.add(process, tuple(whole[rank][max(0, now - ring) : now]))
        look(windows, following)
        found.append(following.found.rank if following.found is not None else None)
    return found


def test_found_after_two_looks_and_over_after_two() -> None:
    """A rank is late in steps 100 to 250 of 400, and looked at every 20 steps."""
    work: Work = lambda step, rank: 1.3 if rank == 2 and 100 <= step < 250 else 1.0  # noqa: E731
    found = follow(work, steps=400, every=20)
    assert found[:6] == [None] * 6
    assert found[7:13] == [2] * 6
    assert found[15:] == [None] * 5


@pytest.mark.parametrize(
    ("looks", "found"), [((2, 2), 2), ((2, None, 2), 2), ((2, None, None, 2), None), ((2, 1, 2), None)]
)
def test_two_of_three_looks_agree(looks: tuple[int | None, ...], found: int | None) -> None:
    """A look that names nobody may lie between them, one that names another rank not."""
    following = Following()
    for rank in looks:
        following._take(LateRank(rank, 0.2, 10**7, (), 50, 60))
    assert (following.found.rank if following.found else None) == found


def test_a_short_ring() -> None:
    """Its parts are put together, if they overlap; with gaps between them there are never steps enough."""
    assert follow(slow(1, 0.3), steps=120, every=10, ring=12)[-1] == 1
    assert follow(slow(1, 0.3), steps=120, every=14, ring=12)[-1] is None


def test_a_look_at_nothing_new_does_not_count() -> None:
    """Two looks at one record agree in any case."""
    windows, following, whole = Windows(), Following(), records(slow(1, 0.3), 60)
    for _ in range(3):
        windows.keep([Process(rank, 1, 1.0) for rank in whole])
        for rank, operations in whole.items():
            windows.add(Process(rank, 1, 1.0), tuple(operations))
        look(windows, following)
    assert following.found is None


def test_what_repeats_within_a_step() -> None:
    """80 layers of FSDP: the gathers and reductions of a layer are no step, nor are parts of a step that a log interrupts."""
    layers = ("gather",) * 80 + ("gather", "reduce") * 80
    assert find_period(layers * 3) == 240
    assert find_period(layers * 2) != 240
    assert find_period((("first", "second") * 10 + ("loss",)) * 20) == 21
    assert find_period(tuple(range(50))) == 1


@pytest.mark.parametrize(("told", "found"), [(True, [None, 1, 1]), (False, [None, None, None])])
def test_what_comes_every_ten_steps_is_in_none_if_the_program_counts_them(told: bool, found: list[int | None]) -> None:
    """A Trainer that gathers its loss then; three looks, one every 20 steps."""
    windows, following, seen = Windows(), Following(), []
    processes = {rank: Process(rank, 1, 1.0) for rank in WORLD.ranks}
    job = SimulatedJob(4, "sync", slow(1, 0.3), lambda step, _rank: 1e-6 if step % 10 == 9 else 0.0, steps=60)
    whole = {rank: [to_operation(at, call) for at, call in enumerate(calls)] for rank, calls in job.run().items()}
    windows.keep(list(processes.values()))
    for reached in (20, 40, 60):
        for rank, process in processes.items():
            new = whole[rank][: reached + reached // 10]
            windows.add(process, tuple(new))
        windows.steps_per_s = 20e9 / (new[-1].created_ns - new[-22].created_ns) if told else 0.0
        look(windows, following)
        seen.append(following.found.rank if following.found is not None else None)
    assert seen == found


def test_other_processes_begin_anew() -> None:
    """A rank that was restarted has a record of its own."""
    windows, following, whole = Windows(), Following(), records(slow(1, 0.3), 60)
    for pid in (1, 2):
        windows.keep([Process(rank, pid, 1.0) for rank in whole])
        for rank, operations in whole.items():
            windows.add(Process(rank, pid, 1.0), tuple(operations))
        look(windows, following)
    assert following.found is not None
    assert len(windows._of) == 4


def test_the_window_keeps_the_newest() -> None:
    """So many at most; a record of another backend tells nothing."""
    window, whole = Window(0, 50), records(slow(1, 0.3), 60)
    window.add(tuple(whole[0]))
    assert [call.seq for call in window.calls] == list(range(11, 61))
    window.add((msgspec.structs.replace(whole[0][0], record_id=60, backend="nccl"),))
    assert not window.telling
    window.add(tuple(whole[0][:3]))
    assert window.telling
    assert [call.seq for call in window.calls] == [1, 2, 3]
