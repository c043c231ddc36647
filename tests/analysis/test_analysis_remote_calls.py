"""Calls of ``torch.distributed.rpc``: who runs what a rank awaits the result of, and from which thread that one is seen."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.patience import fixed_patience
from hangwatch.analysis.stacks.remote_calls import names_awaited, runs_remote_call
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import RankCapture
from hangwatch.model.collectives import Group
from hangwatch.model.incident import Verdict
from hangwatch.model.processes import ThreadSample
from hangwatch.model.stacks import Frame, StackSample, ThreadStack
from worlds import SECOND_NS, collective_frames, operation, rank, world

PAIR = Group("0", (0, 1), "learners")
RPC = "/site-packages/torch/distributed/rpc"
SYNC = Frame("rpc_sync", f"{RPC}/api.py", 842, "return fut.wait()")
SHUTDOWN = (
    Frame("Event.wait", "/usr/lib/python3.11/threading.py", 629),
    Frame("_all_gather", f"{RPC}/api.py", 257),
    Frame("_wait_all_workers", f"{RPC}/api.py", 320),
    Frame("shutdown", f"{RPC}/api.py", 382),
    Frame("main", "/srv/train/train.py", 39, "rpc.shutdown()"),
)
ASKS = 'reward = rpc.rpc_sync("scorer", score, args=(batch,))'


def line(source: str, local: str = "Future") -> Frame:
    """The program's line that asks."""
    return Frame("main", "/srv/train/train.py", 33, source, locals={"reward": local})


def runs(function: str) -> tuple[Frame, ...]:
    """A thread in a function that another process has called."""
    own = Frame(function, "/srv/train/train.py", 12 + len(function), "with open(path) as rubric:")
    return (own, Frame("_run_function", f"{RPC}/internal.py", 209))


def callee(number: int, *threads: tuple[Frame, ...]) -> RankCapture:
    """A rank in ``rpc.shutdown`` with these threads."""
    made = rank(number, (), SHUTDOWN, channel="futex_do_wait")
    ids = range(900, 900 + len(threads))
    own = tuple(ThreadSample(n, "S", switches=7, wait_channel="wait_for_partner", syscall="openat") for n in ids)
    stacks = tuple(
        StackSample(
            s.at_ns,
            (
                *s.threads,
                *(ThreadStack(n, None, False, False, False, t, ident=n) for n, t in zip(ids, threads, strict=True)),
            ),
        )
        for s in made.stacks
    )
    processes = tuple(msgspec.structs.replace(p, threads=own) for p in made.processes)
    return msgspec.structs.replace(made, processes=processes, stacks=stacks)


def verdict(asks: tuple[Frame, ...], *callees: RankCapture) -> Verdict:
    """Rank 0 awaits a result, rank 1 a collective that rank 0 has not joined."""
    first = rank(0, (operation(1, PAIR, 1),), asks, channel="futex_do_wait")
    second = rank(1, (operation(1, PAIR, 1), operation(2, PAIR, 2, done=False)), collective_frames("all_reduce"))
    return diagnose(world(first, second, *callees), patience=fixed_patience(6.0)).verdict


@pytest.mark.parametrize(
    "asks",
    [(SYNC, line(ASKS)), (line("value = reward.wait()"),), (line("value = reward.to_here()", "PyRRef"),)],
    ids=["sync", "async", "remote"],
)
def test_the_rank_that_runs_the_function_is_named(asks: tuple[Frame, ...]) -> None:
    """By its thread that runs it: its main one awaits the end of all calls. A connection says nothing, so nothing is proven."""
    found = verdict(asks, callee(2, runs("score")))
    assert (found.culprit_ranks, found.waiting_ranks, found.proven) == ((2,), (0, 1), False)
    assert "rank 0 waits in a request for rank 2, which has not answered" in found.waits
    assert found.divergence is not None
    assert found.divergence.culprit is not None
    assert found.divergence.culprit.function == "score"


@pytest.mark.parametrize(
    ("asks", "callees"),
    [
        ((SYNC, line(ASKS)), [callee(2, runs("keep"))]),
        ((SYNC, line(ASKS)), [callee(2)]),
        ((line("value = reward.wait()"),), [callee(2, runs("score")), callee(3, runs("keep"))]),
        ((line("value = reward.wait()", "Reward"),), [callee(2, runs("score"))]),
    ],
    ids=["another-function", "nobody", "two-of-them", "no-remote-result"],
)
def test_where_it_cannot_be_told_the_asker_is_what_is_known(
    asks: tuple[Frame, ...], callees: list[RankCapture]
) -> None:
    """No process is named on a guess."""
    assert verdict(asks, *callees).culprit_ranks == (0,)


def test_a_rank_that_runs_several_functions_is_named_without_a_line_of_one() -> None:
    """It is known that it runs the one that is asked for, and not which of its threads to look at."""
    found = verdict((SYNC, line(ASKS)), callee(2, runs("score"), runs("keep")))
    assert found.culprit_ranks == (2,)
    assert found.divergence is not None
    assert found.divergence.culprit is not None
    assert found.divergence.culprit.function == "main"


@pytest.mark.parametrize("goes_on", [False, True])
def test_all_others_wait_for_a_rank_that_does_not_move(goes_on: bool) -> None:
    """It holds up the job, in no group at all, unless a rank computes that it may wait for itself."""
    ask = (SYNC, line(ASKS))
    asking = [rank(number, (), ask, channel="futex_do_wait") for number in (0, 1)]
    more = [rank(3, (), (line("grow()"),), busy=True)] if goes_on else []
    capture = world(*asking, callee(2, runs("score"), runs("score")), *more)
    later = msgspec.structs.replace(capture, at_ns=capture.at_ns + 10 * SECOND_NS)
    found = diagnose(later, patience=fixed_patience(6.0)).verdict
    assert (found.kind, found.culprit_ranks) == (("healthy", ()) if goes_on else ("stall", (2,)))


def test_names_are_those_of_the_line() -> None:
    """Empty where the line holds a result alone; None where no result is awaited."""
    assert names_awaited((SYNC, line(ASKS))) >= {"score"}  # type: ignore[operator]
    assert names_awaited((line("value = reward.wait()"),)) == frozenset()
    assert names_awaited((line("time.sleep(600)"),)) is None
    assert names_awaited(()) is None
    assert runs_remote_call(runs("score")) == "score"
    assert runs_remote_call(SHUTDOWN) is None
