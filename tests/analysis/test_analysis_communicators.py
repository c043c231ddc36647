"""Waits in a communicator of NCCL that torch has not made: read from the stack, with the members of the group it was given."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.analysis.patience import fixed_patience
from hangwatch.analysis.stacks.communicators import read_communicator
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import Group
from hangwatch.model.stacks import Frame
from worlds import operation, rank, world

EVERYONE = Group("0", (0, 1, 2), "default_pg")
PAIR = Group("1", (0, 1), "tp:0")
PACKAGE = "/opt/venv/lib/python3.11/site-packages/vllm/distributed/device_communicators"
STREAMS = "/opt/venv/lib/python3.11/site-packages/torch/cuda/streams.py"
READS = (Frame("load", "/srv/train/train.py", 31, "with open(path) as file:"),)


def made(group: str = "ProcessGroup=default_pg") -> tuple[Frame, ...]:
    """vLLM: a worker makes its communicator, by way of the library's wrapper."""
    return (
        Frame(
            "NCCLLibrary.ncclCommInitRank",
            f"{PACKAGE}/pynccl_wrapper.py",
            331,
            'self.NCCL_CHECK(self._funcs["ncclCommInitRank"](ctypes.byref(comm),',
            {"self": "NCCLLibrary", "rank": "int=1"},
        ),
        Frame(
            "PyNcclCommunicator.__init__",
            f"{PACKAGE}/pynccl.py",
            101,
            "self.comm: ncclComm_t = self.nccl.ncclCommInitRank(",
            {"self": "PyNcclCommunicator", "group": group},
        ),
        Frame("init_worker", "/srv/train/train.py", 12, "communicator = PyNcclCommunicator(group, device)"),
    )


WARM_UP = (
    Frame("Stream.synchronize", STREAMS, 105, "super().synchronize()", {"self": "Stream"}),
    msgspec.structs.replace(made()[1], line=110, source="stream.synchronize()"),
    made()[2],
)


def waiting(number: int, frames: tuple[Frame, ...], group: Group = EVERYONE) -> RankCapture:
    """A rank that has come so far over its group, by Gloo, and is in these frames now."""
    return rank(number, (operation(1, group, 1),), frames)


@pytest.mark.parametrize("frames", [made(), WARM_UP], ids=["start", "warm-up"])
def test_a_communicator_that_is_made_is_waited_for_by_its_group(frames: tuple[Frame, ...]) -> None:
    """Both belong to its start: one wait, of the group that it was given."""
    found = read_communicator(frames)
    assert found is not None
    assert (found.kind, found.op, found.group, found.outside) == (
        "communicator", "ncclCommInitRank", "default_pg", False,
    )  # fmt: skip


def test_an_operation_is_read_from_the_line_that_calls_it() -> None:
    """By ctypes it has no frame of its own."""
    line = "self.check(self.nccl.ncclBroadcast(buffer, buffer, count, 7, src, self.comm, stream))"
    found = read_communicator((Frame("Communicator.broadcast", "/srv/train/weights.py", 37, line),))
    assert found is not None
    assert (found.op, found.group, found.exact) == ("ncclBroadcast", "", False)


@pytest.mark.parametrize(
    "frames",
    [
        (),
        READS,
        (WARM_UP[0], Frame("step", "/srv/train/train.py", 9, "stream.synchronize()", {"self": "Trainer"})),
        (Frame("report", "/srv/train/train.py", 9, "print(nccl_version(), torch.cuda.nccl.version())"),),
    ],
    ids=["nothing", "a-file", "another-stream", "its-version"],
)
def test_other_calls_are_no_wait_in_a_communicator(frames: tuple[Frame, ...]) -> None:
    """Whatever a program does with streams, or with NCCL's version."""
    assert read_communicator(frames) is None


def test_who_has_not_come_is_named() -> None:
    """Two wait in the start of a communicator of all three; nothing is proven, as no recorder shows what they are in."""
    capture = world(waiting(0, made()), waiting(1, made()), rank(2, (operation(1, EVERYONE, 1),), READS))
    found = build_case(capture).blame
    assert (found.culprits, found.waiting, found.proof) == ((2,), (0, 1), None)


def test_only_members_are_waited_for() -> None:
    """The communicator is of a pair: the third rank is elsewhere, and none of its business."""
    frames = made("ProcessGroup=1")
    ranks = [msgspec.structs.replace(r, flight=None) for r in (waiting(0, frames, PAIR), waiting(1, READS, PAIR))]
    capture = world(*ranks, msgspec.structs.replace(waiting(2, READS), flight=None))
    assert build_case(capture).blame.culprits == (1,)


def test_a_group_that_is_none_of_torchs_leads_outside() -> None:
    """An engine meets its trainer in a store of their own: no rank of this world is blamed for it."""
    capture = world(
        waiting(0, made("StatelessProcessGroup")),
        *(rank(n, (operation(1, EVERYONE, 1), operation(2, EVERYONE, 2, done=False)), READS) for n in (1, 2)),
    )
    found = diagnose(capture, patience=fixed_patience(6.0)).verdict
    assert found.culprit_ranks == ()
    assert not found.proven


def test_all_have_come_and_nothing_moves() -> None:
    """Then it is no rank's fault, and what would say more is named."""
    capture = world(*(waiting(n, made()) for n in range(3)))
    found = diagnose(capture, patience=fixed_patience(0.5)).verdict
    assert (found.kind, found.culprit_ranks) == ("stall", ())
    assert found.cause is not None
    assert found.cause.id == "fabric-or-device"
    assert "hangwatch dump --native-stacks" in found.cause.explanation
