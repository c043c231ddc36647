"""Late ranks of large jobs on several nodes: whose calls are compared, how they are sent, and who is named among them."""

from __future__ import annotations

import msgspec
import pytest
from arrivals import SimulatedJob, Work, as_timed, slow

from hangwatch.slow.flight import MOST_CALLS
from hangwatch.slow.sampling import SentCalls, choose_ranks, find_late_among, find_waited, pack_calls, unpack_calls
from hangwatch.slow.timeline import Call, Streams

RANKS, NODE = 256, 8
SHAPES = ["ddp", "sync", "fsdp", "tp"]


def timed(shape: str, work: Work, ranks: int = RANKS) -> Streams:
    """A job on devices."""
    return as_timed(SimulatedJob(ranks, shape, work).run())


def compare(streams: Streams) -> tuple[list[int], int | None, tuple[int, ...]]:
    """Whose calls are compared, who is named, and who waits for it."""
    own = {rank: streams[rank] for rank in range(NODE)}
    chosen = choose_ranks(own, find_waited(streams), {rank: rank // NODE for rank in streams})
    if not chosen:
        return [], None, ()
    found = find_late_among({rank: streams[rank] for rank in chosen}, one_clock=False)
    return chosen, found.rank if found is not None else None, found.waiting if found is not None else ()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_late_rank_far_away_is_named_from_a_few(shape: str) -> None:
    """All that wait for it are told, also those that were not compared."""
    late = 201
    streams = timed(shape, slow(late, 0.4))
    chosen, named, waiting = compare(streams)
    assert late in chosen
    assert len(chosen) == 32
    assert named == late
    assert waiting == tuple(
        rank for rank in next(c.members for c in streams[late] if waiting[0] in c.members) if rank != late
    )
    assert len(waiting) in {1, RANKS // 2 - 1, RANKS - 1}


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_compared_if_all_wait_alike(shape: str) -> None:
    """So a healthy job has nobody asked for its calls."""
    assert compare(timed(shape, lambda _step, _rank: 1.0)) == ([], None, ())


def test_without_devices_all_are_compared_or_nobody() -> None:
    """Records of Gloo do not tell how long a rank has waited."""
    calls = SimulatedJob(3, "sync").run()
    assert find_waited(calls) == {}
    assert choose_ranks(calls, {}, dict.fromkeys(range(40))) == list(range(40))
    assert choose_ranks(calls, {}, dict.fromkeys(range(MOST_CALLS))) == []


@pytest.mark.parametrize("streams", [SimulatedJob(4, "tp").run(), timed("fsdp", slow(1, 0.2), 4)])
def test_calls_travel(streams: Streams) -> None:
    """The key of a group is text then, as it is in records."""
    for rank, calls in streams.items():
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(pack_calls(rank, calls)), type=SentCalls)
        assert sent.rank == rank
        assert unpack_calls(sent) == [msgspec.structs.replace(call, group=str(call.group)) for call in calls]


def test_broken_calls_are_refused() -> None:
    """Columns of different lengths, and places that no table has."""
    sent = pack_calls(0, [Call("dp", 1, (0, 1), "all_reduce", 5)])
    for broken in ({"seq": (1, 2)}, {"group": (7,)}, {"name": (3,)}):
        with pytest.raises(ValueError, match=r"argument|tables"):
            unpack_calls(msgspec.structs.replace(sent, **broken))
