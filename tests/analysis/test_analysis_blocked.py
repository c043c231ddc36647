"""A job whose every rank is blocked by a file, with nothing in flight."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.analysis.patience import Cadence, fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import Group
from hangwatch.model.stacks import Block, Frame
from worlds import collective_frames, operation, rank, world

PAIR = Group("0", (0, 1), "default_pg")
TORCH = "/opt/venv/lib/python3.11/site-packages/torch/utils"
BATON = (
    Frame("FileBaton.wait", f"{TORCH}/file_baton.py", 50, "time.sleep(self.wait_seconds)"),
    Frame("load", f"{TORCH}/cpp_extension.py", 2156),
    Frame("<module>", "/srv/train/train.py", 9),
)  # fmt: skip
SLEEP = (Frame("rest", "/srv/train/train.py", 30, "time.sleep(600)"), Frame("<module>", "/srv/train/train.py", 90))


def _waking(one: RankCapture) -> RankCapture:
    """A rank that polls: it wakes between the samples."""
    return msgspec.structs.replace(
        one, processes=tuple(msgspec.structs.replace(p, switches=i) for i, p in enumerate(one.processes))
    )


def _on(one: RankCapture, **changes: str) -> RankCapture:
    return msgspec.structs.replace(one, processes=tuple(msgspec.structs.replace(p, **changes) for p in one.processes))


def _at_a_lock(ranks: int) -> Capture:
    return world(*(_waking(rank(r, (), BATON, channel="hrtimer_nanosleep")) for r in range(ranks)))


def test_all_ranks_at_a_lock_file_are_a_stall_that_names_them_all() -> None:
    """Nobody waits for anybody, but nothing can go on until the file is gone."""
    verdict = diagnose(_at_a_lock(3)).verdict
    assert (verdict.kind, verdict.proven, verdict.culprit_ranks, verdict.waiting_ranks) == (
        "stall",
        False,
        (0, 1, 2),
        (),
    )
    assert verdict.cause is not None
    assert verdict.cause.id == "blocked-io"
    assert verdict.divergence is not None
    assert verdict.divergence.others is None


@pytest.mark.parametrize(
    ("owner", "kind"),
    [("", "stall"), (" held by 77 python", "straggler"), (f" held by {rank(0, ()).identity.pid} python", "stall")],
    ids=["nobody", "another-job", "a-rank"],
)
def test_a_lock_file_that_another_job_has_is_a_wait(owner: str, kind: str) -> None:
    """It is no hang before it has lasted for as long as what cannot be seen; a rank that has it is of the job."""
    path = f"/root/.cache/torch_extensions/shm_comm/lock{owner}"
    seen = [_on(_waking(rank(r, (), BATON, channel="hrtimer_nanosleep")), blocked_on=path) for r in range(2)]
    verdict = diagnose(world(*seen), patience=fixed_patience(1.0)).verdict
    assert (verdict.kind, verdict.culprit_ranks) == (kind, (0, 1))
    assert verdict.cause is not None
    assert (path in verdict.cause.explanation) == bool(owner)


@pytest.mark.parametrize("how", ["there", "elsewhere", "nobody"])
def test_a_lock_that_a_waiting_rank_has_is_a_deadlock(how: str) -> None:
    """Neither can go on: only who has the lock decides, and a pid of another node says nothing."""
    holder = rank(0, (operation(0, PAIR, 1, "barrier", done=False),), collective_frames("barrier"))
    if how == "elsewhere":
        holder = msgspec.structs.replace(holder, identity=msgspec.structs.replace(holder.identity, node="node-1"))
    owner = f" held by {holder.identity.pid} python" if how != "nobody" else ""
    waiter = _on(_waking(rank(1, (), BATON, channel="hrtimer_nanosleep")), blocked_on=f"/srv/cache.lock{owner}")
    verdict = diagnose(world(holder, waiter)).verdict
    assert (verdict.kind, verdict.culprit_ranks) == ("stall", (1,))
    assert verdict.cause is not None
    assert verdict.cause.id == "blocked-io"
    assert ("rank 0 waits for rank 1: neither can go on" in verdict.cause.explanation) == (how == "there")


@pytest.mark.parametrize(
    ("loop", "blocked"),
    [
        ("while self.lock.exists():", True),
        ("while os.path.exists(lock):", True),
        ("while not self.done.exists():", False),
        ("while self.waits and not path.exists():", False),
        ("while lock.exists() and tries < 10:", False),
    ],
)
def test_a_file_that_is_to_go_is_a_lock_file(loop: str, blocked: bool) -> None:
    """A program that sleeps for as long as a file is there waits for a lock; one that is to come may be another phase's."""
    sleep = Frame("turn", "/srv/train/cache.py", 39, "time.sleep(0.25)", blocks=(Block("while", 38, loop),))
    held = world(*(_waking(rank(r, (), (sleep, SLEEP[-1]), channel="hrtimer_nanosleep")) for r in range(2)))
    assert diagnose(held).verdict.culprit_ranks == ((0, 1) if blocked else ())


@pytest.mark.parametrize("call", ["read", "openat", "newfstatat"])
def test_all_ranks_in_a_call_on_a_path_are_one_too(call: str) -> None:
    """A mount that does not answer holds all ranks in their calls, be they interruptible or not."""
    held = [_on(rank(r, (), SLEEP), syscall=call, blocked_on="/data/shard-0.bin") for r in range(2)]
    assert diagnose(world(*held)).verdict.culprit_ranks == (0, 1)
    dead = [rank(r, (), SLEEP, state="D", channel="nfs_wait_bit_killable") for r in range(2)]
    assert diagnose(world(*dead)).verdict.culprit_ranks == (0, 1)


def test_a_job_that_sleeps_is_healthy() -> None:
    """All ranks sleep, or wait for connections or for somebody to type: phases of a job, and no hang."""
    for held in (
        [rank(r, (), SLEEP, channel="hrtimer_nanosleep") for r in range(2)],
        [_on(rank(r, (), SLEEP), syscall="recvfrom", blocked_on="socket:[7]") for r in range(2)],
        [_on(rank(r, (), SLEEP), syscall="read", blocked_on="/dev/pts/3") for r in range(2)],
    ):
        assert diagnose(world(*held)).verdict.kind == "healthy"


def test_one_rank_at_work_keeps_the_job_going() -> None:
    """Whoever builds the extension holds the lock for the others."""
    capture = _at_a_lock(2)
    works = rank(2, (), SLEEP, busy=True)
    assert build_case(world(*capture.ranks, works)).blame.shape == "nothing"


def test_a_rank_that_nobody_sees_may_be_at_work() -> None:
    """One of another node may hold the lock."""
    capture = _at_a_lock(2)
    larger = msgspec.structs.replace(capture, job=msgspec.structs.replace(capture.job, world_size=3))
    assert build_case(larger).blame.shape == "nothing"


def test_it_takes_a_longer_patience_unless_the_user_gave_one() -> None:
    """Slow storage is slow for all ranks alike."""
    assert Cadence().patience().blocked_s == 120.0
    assert fixed_patience(7.0).blocked_s == 7.0
    assert diagnose(_at_a_lock(2), patience=fixed_patience(0.5)).verdict.kind == "stall"
    assert diagnose(_at_a_lock(2), patience=fixed_patience(60.0)).verdict.kind == "healthy"
