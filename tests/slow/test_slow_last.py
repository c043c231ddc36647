"""Who joined operations last, over time: what the page draws."""

from __future__ import annotations

from arrivals import SimulatedJob, slow

from hangwatch.slow.last import find_last
from hangwatch.slow.timeline import Call


def test_who_was_last_over_time() -> None:
    """Before rank 2 became slow anybody may have been last; after it, rank 2 was, by as much as it takes longer."""
    (last,) = find_last(SimulatedJob(4, "sync", slow(2, 0.5, onset=30), steps=60).run()).values()
    assert (last.rank, last.operations) == (2, 60)
    assert 30 <= last.times < 60
    late = [one for one in last.slices if one.late_ns > 20_000_000]
    assert {one.rank for one in late} == {2}
    assert sum(one.operations for one in late) == 30
    assert all(one.began_ns >= last.slices[len(last.slices) // 4].began_ns for one in late)
    assert last.slices[0].began_ns == last.began_ns
    assert last.slices[-1].ended_ns == last.ended_ns


def test_an_operation_without_a_record_of_all_members() -> None:
    """It does not tell who was last; nor does a group of one."""

    def call(group: str, seq: int, members: tuple[int, ...], at_ns: int) -> Call:
        return Call(group, seq, members, "all_reduce", at_ns)

    streams = {
        0: [call("a", 1, (0, 1), 5), call("a", 2, (0, 1), 20), call("b", 1, (0,), 30)],
        1: [call("a", 1, (0, 1), 9)],
    }
    (last,) = find_last(streams).values()
    assert (last.rank, last.times, last.operations, last.late_ns) == (1, 1, 1, 4)
    assert len(last.slices) == 1
