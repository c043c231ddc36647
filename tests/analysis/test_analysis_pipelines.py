"""Waits of torch.distributed.pipelining on Gloo, which no recorder shows: whom a stage waits for is in its stack."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.analysis.ranks.views import view_rank
from hangwatch.analysis.stacks.waits import read_wait
from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import Group, GroupProgress
from hangwatch.model.stacks import Block, Frame
from worlds import collective_frames, operation, rank, world

SCHEDULES = "/opt/venv/lib/python3.11/site-packages/torch/distributed/pipelining/schedules.py"
WORLD4 = Group("0", (0, 1, 2, 3), "default_pg")
FORWARD = (
    Block("for", 904, "for i in range(self._n_microbatches):"),
    Block("with", 905, 'with record_function(f"Forward {i}"):'),
)
SENDS = (Block("for", 927, "for work in fwd_sends_to_wait:"),)
BACKWARD = (
    Block("for", 934, "for i in range(self._n_microbatches):"),
    Block("with", 935, 'with record_function(f"Backward {i}"):'),
)
BACK_SENDS = (Block("for", 954, "for work in bwd_sends_to_wait:"),)


def step(schedule: str, line: str, blocks: tuple[Block, ...] = (), *names: str) -> tuple[Frame, ...]:
    """The main thread inside a schedule's step, at this line of it and with these variables set."""
    reported = {"self": schedule, **dict.fromkeys(names, "list[P2POp]")}
    return (
        Frame("_wait_batch_p2p", SCHEDULES, 683, "w.wait()", {"work": "list[Work]", "w": "Work"}),
        Frame(f"{schedule}._step_microbatches", SCHEDULES, 928, line, reported, blocks),
        Frame("PipelineScheduleSingle.step", SCHEDULES, 785, "self._step_microbatches("),
        Frame("<module>", "/srv/train/train.py", 12),
    )


def gpipe(blocks: tuple[Block, ...]) -> tuple[Frame, ...]:
    """In one of GPipe's four waits, which only the blocks around them tell apart."""
    return step("ScheduleGPipe", "_wait_batch_p2p(work)", blocks)


def in_groups(capture: RankCapture, *groups: Group) -> RankCapture:
    """The rank as a member of these groups, by its beat."""
    return msgspec.structs.replace(capture, progress=tuple(GroupProgress(g, 0, -1, 0) for g in groups))


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (gpipe(FORWARD), ("recv", -1)),
        (gpipe(SENDS), ("send", 1)),
        (gpipe(BACKWARD), ("recv", 1)),
        (gpipe(BACK_SENDS), ("send", -1)),
        (step("Schedule1F1B", '_wait_batch_p2p(_batch_p2p(fwd_recvs, desc="fwd_recv"))'), ("recv", -1)),
        (step("Schedule1F1B", "_wait_batch_p2p(send_work)", (), "fwd_recvs"), ("send", 1)),
        (step("Schedule1F1B", "_wait_batch_p2p(send_work)", (), "fwd_recvs", "bwd_recvs"), ("send", -1)),
        (step("Schedule1F1B", 'x(_batch_p2p(fwd_sends + bwd_recvs, desc="fwd_send_bwd_recv"))'), ("exchange", 1)),
    ],
)
def test_the_schedule_tells_which_neighbour_is_awaited(frames: tuple[Frame, ...], expected: tuple[str, int]) -> None:
    """By its own words, by the loop around the line, or by what the rank has come to."""
    wait = read_wait(frames)
    assert wait is not None
    assert (wait.kind, wait.op, wait.stage) == ("point_to_point", *expected)


@pytest.mark.parametrize(
    "frames", [gpipe(()), step("ScheduleInterleaved1F1B", '_wait_batch_p2p(_batch_p2p(ops, desc="fwd_recv"))')]
)
def test_a_wait_whose_neighbour_is_not_known_names_none(frames: tuple[Frame, ...]) -> None:
    """A source that was not read, or a schedule of several stages a rank."""
    wait = read_wait(frames)
    assert wait is not None
    assert (wait.kind, wait.peers, wait.stage) == ("work", (), None)


def test_stages_go_by_the_ranks_of_the_only_group() -> None:
    """The first has none before it; in several groups nobody knows which is the pipeline's."""
    other = Group("1", (2, 3))

    def peers(number: int, blocks: tuple[Block, ...], *groups: Group) -> tuple[int, ...]:
        wait = view_rank(in_groups(rank(number, (), gpipe(blocks)), *groups)).wait
        assert wait is not None
        return wait.peers

    assert peers(2, SENDS, WORLD4) == (3,)
    assert peers(2, FORWARD, WORLD4) == (1,)
    assert peers(0, FORWARD, WORLD4) == ()
    assert peers(3, SENDS, WORLD4) == ()
    assert peers(2, SENDS, WORLD4, other) == ()


def test_two_stages_that_both_send_wait_for_each_other() -> None:
    """The last has cut the batch into fewer pieces: it sends gradients while the one before still sends activations."""
    blocks = {0: BACKWARD, 1: BACKWARD, 2: SENDS, 3: BACK_SENDS}
    blame = build_case(world(*(in_groups(rank(r, (), gpipe(b)), WORLD4) for r, b in blocks.items()))).blame
    assert blame.culprits == (2, 3)
    assert blame.waiting == (0, 1)
    assert blame.proof is not None


def test_stages_that_send_to_and_receive_from_each_other_meet() -> None:
    """One batch of both on one side, a receive on the other: nothing speaks against it."""
    both = step("Schedule1F1B", '_wait_batch_p2p(_batch_p2p(fwd_sends + bwd_recvs, desc="fwd_send_bwd_recv"))')
    receives = step("Schedule1F1B", '_wait_batch_p2p(_batch_p2p(fwd_recvs, desc="fwd_recv"))')
    pair = Group("0", (0, 1), "default_pg")
    case = build_case(world(in_groups(rank(0, (), both), pair), in_groups(rank(1, (), receives), pair)))
    assert case.graph.edges == ()


def test_a_stage_that_is_through_closes_the_circle() -> None:
    """It is in a barrier of all, which the others have not come to; they wait for it along the pipeline."""
    through = rank(2, (operation(0, WORLD4, 1, "barrier", done=False),), collective_frames("barrier"))
    others = {0: SENDS, 1: SENDS, 3: FORWARD}
    case = build_case(world(through, *(in_groups(rank(r, (), gpipe(b)), WORLD4) for r, b in others.items())))
    assert case.blame.culprits == (2,)
    assert case.blame.proof is not None
