"""A verdict does not depend on the size of the job: recorded hangs with up to 512 ranks."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hangwatch
from hangwatch.analysis.stacks.waits import read_wait
from hangwatch.diagnosis.document import make_incident
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.stacks import SharedFrames
from hangwatch.model.transforms.packing import pack, unpack
from recorded import NAMES, load, verdict_of
from replicas import enlarged, has_peers

LARGEST = 512
SETTINGS = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
#: Captures in which ranks wait for certain others: a copy of a sender has no receiver.
WITH_PEERS = frozenset(
    {
        "branch_on_data",
        "guard_below",
        "jumped_turn",
        "labels_absent_zero2",
        "own_keys",
        "p2p",
        "ring_of_pairs",
        "role_receive",
        "roles",
        "silent_shift",
        "skipped_step",
        "tensor_parallel",
        "two_roots",
        "tuple_labels_zero",
        "validation_on_main",
        "wrong_peer",
    }
)
#: A straggler is one rank among many, so it has no copies either; others may wait beside.
STRAGGLERS = frozenset({"busy_loop", "compiling", "habitual_straggler", "rank0_work"})
#: With a third rank the skipped call is seen too, and that cause goes first.
BY_TWO_RANKS = frozenset({"tuple_labels_silent"})
HANGS = tuple(name for name in NAMES if name not in WITH_PEERS | BY_TWO_RANKS)
STANDING = tuple(name for name in HANGS if name not in STRAGGLERS)


def _numbered(counts: dict[int, int], order: list[int]) -> dict[int, list[int]]:
    """New rank numbers in the given order, so many for each old rank."""
    numbers = iter(order)
    return {rank: [next(numbers) for _ in range(count)] for rank, count in counts.items()}


def _check(name: str, copies: dict[int, list[int]]) -> None:
    before, after = verdict_of(name), diagnose(enlarged(load(name), copies)).verdict
    assert after.kind == before.kind
    assert after.proven == before.proven
    assert set(after.culprit_ranks) == {new for rank in before.culprit_ranks for new in copies[rank]}
    assert set(after.waiting_ranks) == {new for rank in before.waiting_ranks for new in copies[rank]}
    assert before.cause is not None
    assert after.cause is not None
    assert after.cause.id == before.cause.id
    # People read it: what is said does not grow with the job.
    assert len(after.cause.evidence) <= len(before.cause.evidence) + 2
    assert len(after.waits) <= len(before.waits) + 2


def test_the_exceptions_are_those_there_are() -> None:
    """Only a hang whose ranks wait for certain others, and a straggler, is left out; nothing of it is healthy."""
    assert {name for name in NAMES if has_peers(load(name))} == WITH_PEERS
    assert {name for name in HANGS if verdict_of(name).kind == "straggler"} == STRAGGLERS - WITH_PEERS
    assert all(verdict_of(name).kind != "healthy" for name in HANGS)


@SETTINGS
@given(name=st.sampled_from(HANGS), data=st.data())
def test_more_ranks_that_wait_change_nothing(name: str, data: st.DataObject) -> None:
    """However many ranks wait beside those that waited, the culprits and the cause are the same."""
    capture = load(name)
    verdict = verdict_of(name)
    world = range(capture.job.world_size or 0)
    room = LARGEST - len(world)
    counts = {}
    for rank in world:
        more = data.draw(st.integers(0, room)) if rank in verdict.waiting_ranks else 0
        room -= more
        counts[rank] = 1 + more
    order = data.draw(st.permutations(range(sum(counts.values()))))
    _check(name, _numbered(counts, order))


@pytest.mark.parametrize("name", STANDING)
def test_every_rank_many_times(name: str) -> None:
    """The same hang, in proportion, in a job of up to 512 ranks: every copy of a culprit is one."""
    capture = load(name)
    world = range(capture.job.world_size or 0)
    times = LARGEST // len(world)
    # Neighbours are not alike: copies of one rank are spread over the whole job.
    _check(name, {rank: [rank + i * len(world) for i in range(times)] for rank in world})


def _spread(name: str, size: int) -> Capture:
    """A recorded hang as one of so many ranks: each rank many times."""
    capture = load(name)
    world = capture.job.world_size or 0
    return enlarged(capture, {rank: list(range(rank, size - size % world, world)) for rank in range(world)})


def _count_lines(capture: Capture) -> Counter[tuple[str, int]]:
    """How often each line of hangwatch runs while the capture becomes an incident; a line's loop counts each time round."""
    package, counts = str(Path(hangwatch.__path__[0])), Counter[tuple[str, int]]()

    def in_function(frame: FrameType, event: str, _: object) -> Callable[..., object]:
        if event == "line":
            counts[frame.f_code.co_filename, frame.f_lineno] += 1
        return in_function

    def in_call(frame: FrameType, _event: str, _: object) -> Callable[..., object] | None:
        return in_function if frame.f_code.co_filename.startswith(package) else None

    before = sys.gettrace()
    sys.settrace(in_call)
    try:
        make_incident(diagnose(capture), detected_ns=capture.at_ns, confirmed_ns=capture.at_ns)
    finally:
        sys.settrace(before)
    return counts


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize("name", HANGS[::4])  # counting takes long, and most lines run in all of them
def test_no_line_runs_for_all_pairs_of_ranks(name: str) -> None:
    """With thousands of ranks the verdict would take minutes: this names the line."""
    few, many = 32, 64
    fewer, more = _count_lines(_spread(name, few)), _count_lines(_spread(name, many))
    # Half of all pairs are allowed: of many culprits each is asked who waits for it.
    pairs = many * many // 2
    squared = [line for line, count in more.items() if count >= pairs and count > 3 * fewer[line]]
    assert [f"{file}:{number}" for file, number in squared] == []


@pytest.mark.parametrize("name", ["rank_conditional", "tensor_parallel", "busy_loop"])
def test_a_stack_of_many_ranks_is_read_once(name: str) -> None:
    """What is read from a stack is kept with it for all ranks that have it, and is what each of them shows by itself."""
    capture = _spread(name, 64)
    received = unpack(pack(capture))
    threads = [t for rank in received.ranks for sample in rank.stacks for t in sample.threads]
    assert len({id(thread.frames) for thread in threads}) <= len({repr(thread.frames) for thread in threads})
    assert diagnose(received).verdict == diagnose(capture).verdict
    frames = next(thread.frames for thread in threads if thread.is_main)
    assert isinstance(frames, SharedFrames)
    assert read_wait(frames) is read_wait(frames)
