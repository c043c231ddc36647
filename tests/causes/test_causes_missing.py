"""Ranks that have not come, or do not go on: what is known of them from the stacks of others, locks that are files."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.patience import fixed_patience
from hangwatch.analysis.stacks.waits import read_wait
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.stacks import Frame
from recorded import load, verdict_of

C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
RENDEZVOUS = "/opt/venv/lib/python3.11/site-packages/torch/distributed/rendezvous.py"
USER = Frame("main", "/srv/train/train.py", 9, "dist.init_process_group()", locals={"world_size": "int"})
OPEN = Frame("init_process_group", C10D, 1892, locals={"world_size": "int=-1", "rank": "int=-1"})


@pytest.mark.parametrize(
    ("frames", "size"),
    [
        ((Frame("_create_c10d_store", RENDEZVOUS, 199, locals={"world_size": "int=4"}), OPEN, USER), 4),
        (
            (
                Frame("_env_rendezvous_handler", RENDEZVOUS, 280, locals={"world_size": "int=8", "rank": "int=0"}),
                OPEN,
                USER,
            ),
            8,
        ),
        ((Frame("_new_process_group_helper", C10D, 2169, locals={"group_size": "int=16"}), OPEN, USER), 16),
        ((OPEN, USER), None),
        ((Frame("init_process_group", C10D, 1892, locals={"world_size": "int=2"}), USER), 2),
    ],
)
def test_initialization_tells_how_many_it_waits_for(frames: tuple[Frame, ...], size: int | None) -> None:
    """From whichever of torch's frames knows it; the function's own argument may be -1."""
    wait = read_wait(frames)
    assert wait is not None
    assert (wait.kind, wait.world_size) == ("initialization", size)


def announced(capture: Capture, size: int, world_size: int | None) -> Capture:
    """The capture in which ``init_process_group`` was given ``size`` ranks, and the environment of ``world_size``."""
    text = msgspec.json.encode(capture).decode()
    for name in ("group_size", "world_size"):
        text = text.replace(f'"{name}":"int=3"', f'"{name}":"int={size}"')
    found = msgspec.json.decode(text, type=Capture)
    return msgspec.structs.replace(found, job=msgspec.structs.replace(found.job, world_size=world_size))


@pytest.mark.parametrize("world_size", [3, None])
def test_rank_that_was_announced_and_never_started_is_missing(world_size: int | None) -> None:
    """Three ranks wait for the fourth, whatever the launcher's environment says of the world, or nothing."""
    capture = load("missing_init")
    waiting = [r for r in capture.ranks if r.rank != 2]
    third = msgspec.structs.replace(waiting[0], identity=msgspec.structs.replace(waiting[0].identity, rank=2, pid=4242))
    capture = msgspec.structs.replace(capture, ranks=(*waiting, third))
    assert diagnose(announced(capture, 3, 3)).verdict.culprit_ranks == ()
    verdict = diagnose(announced(capture, 4, world_size)).verdict
    assert (verdict.kind, verdict.culprit_ranks, verdict.waiting_ranks) == ("stall", (3,), (0, 1, 2))
    assert verdict.cause is not None
    assert verdict.cause.id == "init-missing-rank"
    assert ("the launcher started 3" in verdict.cause.explanation) is (world_size == 3)


def test_rank_that_may_be_started_anew_is_given_its_time() -> None:
    """While torchrun begins again, ranks of one node wait for those whose first try has just failed on another."""
    lost = load("never_joined")
    assert diagnose(lost, patience=fixed_patience(30.0)).verdict.proven
    ranks = []
    for rank in lost.ranks:
        supervised = tuple(msgspec.structs.replace(p, supervised=p.state == "gone") for p in rank.processes)
        ranks.append(msgspec.structs.replace(rank, processes=supervised))
    capture = msgspec.structs.replace(lost, ranks=tuple(ranks))
    assert diagnose(capture, patience=fixed_patience(30.0)).verdict.kind == "healthy"
    for patience in (fixed_patience(1.0), None):
        verdict = diagnose(capture, patience=patience).verdict
        assert (verdict.kind, verdict.culprit_ranks, verdict.proven) == ("rank_lost", (1,), False)


@pytest.mark.parametrize(
    ("ended", "failure", "first", "others"),
    [
        (False, (), "rank-died", {"early-exit", "rank-raised"}),
        (True, (), "early-exit", {"rank-raised"}),
        (True, ("load (/srv/train/data.py:12)", "ValueError: no such shard"), "rank-raised", {"early-exit"}),
    ],
)
def test_last_beat_tells_how_a_rank_came_to_be_gone(
    ended: bool, failure: tuple[str, ...], first: str, others: set[str]
) -> None:
    """Its program ended by itself or by an exception, though nobody has seen its status; where it was cut off, it died."""
    lost = load("killed")
    ranks = tuple(msgspec.structs.replace(r, ended=ended, log_error=failure) if r.rank == 2 else r for r in lost.ranks)
    verdict = diagnose(msgspec.structs.replace(lost, ranks=ranks)).verdict
    assert (verdict.kind, verdict.culprit_ranks) == ("rank_lost", (2,))
    assert verdict.cause is not None
    assert verdict.cause.id == first
    assert others.isdisjoint(cause.id for cause in verdict.alternatives)


def test_rank_that_polls_in_its_store_waits_as_long_as_it_stands_there() -> None:
    """The rank that hosts the store looks every few milliseconds, and sleeps in between: that is one wait."""
    capture = load("missing_init")
    ranks = []
    for rank in capture.ranks:
        polling = tuple(msgspec.structs.replace(p, switches=100 * i) for i, p in enumerate(rank.processes))
        ranks.append(msgspec.structs.replace(rank, processes=polling) if rank.rank == 0 else rank)
    verdict = diagnose(msgspec.structs.replace(capture, ranks=tuple(ranks)), min_wait_s=0.3).verdict
    assert verdict.waiting_ranks == (0, 1)


@pytest.mark.parametrize(
    "frame",
    [
        Frame("BaseFileLock.acquire", "/opt/venv/lib/python3.11/site-packages/filelock/_api.py", 333),
        Frame("FileBaton.wait", "/opt/venv/lib/python3.11/site-packages/torch/utils/file_baton.py", 50),
    ],
)
def test_a_lock_that_is_a_file_is_a_wait_for_a_file(frame: Frame) -> None:
    """Such libraries look again and again and sleep in between: no system call tells, their frames do."""
    capture = load("blocked_io")
    (culprit,) = diagnose(capture).verdict.culprit_ranks
    ranks = []
    for rank in capture.ranks:
        if rank.rank == culprit:
            stacks = tuple(
                msgspec.structs.replace(
                    s,
                    threads=tuple(
                        msgspec.structs.replace(t, frames=(frame, USER) if t.is_main else t.frames) for t in s.threads
                    ),
                )
                for s in rank.stacks
            )
            asleep = tuple(
                msgspec.structs.replace(p, syscall="clock_nanosleep", wait_channel="hrtimer_nanosleep", blocked_on=None)
                for p in rank.processes
            )
            rank = msgspec.structs.replace(rank, stacks=stacks, processes=asleep)  # noqa: PLW2901
        ranks.append(rank)
    cause = diagnose(msgspec.structs.replace(capture, ranks=tuple(ranks))).verdict.cause
    assert cause is not None
    assert cause.id == "blocked-io"
    assert "lock file" in cause.explanation


def test_a_dump_says_where_a_rank_is_that_nobody_waits_for() -> None:
    """A person who asks about it knows that it hangs."""
    capture = load("two_locks")
    alone = tuple(rank for rank in capture.ranks if rank.rank in verdict_of("two_locks").culprit_ranks)
    job = msgspec.structs.replace(capture.job, world_size=1)
    verdict = diagnose(msgspec.structs.replace(capture, ranks=alone, job=job)).verdict
    assert (verdict.kind, verdict.culprit_ranks) == ("healthy", ())
    assert "nothing moves: rank 1 is in <module> (train/two_locks.py:28)" in verdict.summary
