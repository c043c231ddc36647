"""Failed jobs: what their ranks have left, recorded by ``fixtures/record_failed.py``, and what their output says. Pure."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import msgspec
import pytest

from failing import FAULTS, MISMATCHES
from hangwatch.agent.capturing.failed import reopen_last
from hangwatch.analysis.ranks.failing import is_lost_peer
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.incident import Verdict
from hangwatch.postmortem.artifacts import read_artifacts
from hangwatch.sources.dumps.failure_log import parse_failure_log

FAILED = Path(__file__).resolve().parent.parent / "fixtures" / "failed"
CLOSED = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1"
)


def load(fault: str) -> Capture:
    """What is left of a job with this fault."""
    return msgspec.json.decode((FAILED / f"{fault}.json").read_bytes(), type=Capture)


def of_log(name: str) -> Verdict:
    """What is said of a log."""
    return diagnose(read_artifacts(FAILED / f"{name}.log", lambda *_: None).capture).verdict


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_left_of_a_job_tells_a_mismatch_from_other_failures(fault: str) -> None:
    """And the same whatever the order of the ranks."""
    capture = load(fault)
    for ranks in permutations(capture.ranks):
        verdict = diagnose(msgspec.structs.replace(capture, ranks=ranks)).verdict
        if fault not in MISMATCHES:
            assert verdict.kind == "healthy", verdict.summary
            continue
        assert verdict.kind == "failed", verdict.summary
        assert verdict.cause is not None
        assert verdict.cause.id in MISMATCHES[fault].causes
        assert set(verdict.culprit_ranks) & MISMATCHES[fault].culprits


@pytest.mark.parametrize("fault", sorted(MISMATCHES))
def test_what_one_rank_has_left_compares_with_nothing(fault: str) -> None:
    """Only where Gloo has ended it for a message's size is it certain that the calls did not match."""
    capture = load(fault)
    for rank in capture.ranks:
        verdict = diagnose(msgspec.structs.replace(capture, ranks=(rank,))).verdict
        if not rank.terminated:
            assert verdict.kind == "healthy", verdict.summary
            continue
        assert verdict.kind == "failed", verdict.summary
        assert verdict.cause is not None
        assert verdict.cause.id == "collective-mismatch"
        assert f"rank {rank.rank} got a message that did not fit all_" in verdict.summary


@pytest.mark.parametrize("fault", sorted(MISMATCHES))
def test_an_error_of_a_ranks_own_comes_before_any_mismatch(fault: str) -> None:
    """Whatever the calls show then may be what came of it."""
    capture = load(fault)
    first, *others = capture.ranks
    failed = msgspec.structs.replace(first, terminated=False, log_error=("step (train.py:3)", "MemoryError: "))
    verdict = diagnose(msgspec.structs.replace(capture, ranks=(failed, *others))).verdict
    assert verdict.kind == "healthy"
    assert "MemoryError" in verdict.summary


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (("all_reduce (d.py:1)", CLOSED), True),
        (("all_reduce (d.py:1)", "DistBackendError"), True),
        (("_create_tcp_store (rendezvous.py:1)", "DistNetworkError"), False),
        (("main (train.py:1)", "ConnectionResetError: [Errno 104] Connection reset by peer"), False),
        (("main (train.py:1)", "ValueError: no such shard"), False),
        ((), False),
    ],
)
def test_a_lost_peer_is_told_from_other_errors(error: tuple[str, ...], lost: bool) -> None:
    """By what c10d raises, and not by a word about connections."""
    assert is_lost_peer(error) is lost


def test_an_operation_is_opened_again_only_where_its_rank_failed() -> None:
    """One that has failed elsewhere, in a send of which there is no record, has completed it."""
    rank = next(r for r in load("sizes").ranks if r.flight is not None and r.stacks)
    assert rank.flight is not None
    done = msgspec.structs.replace(
        rank.flight, operations=tuple(msgspec.structs.replace(o, completed=True) for o in rank.flight.operations)
    )
    assert not reopen_last(done, rank.stacks[0]).operations[-1].completed
    threads = tuple(msgspec.structs.replace(t, frames=t.frames[-1:]) for t in rank.stacks[0].threads)
    elsewhere = msgspec.structs.replace(rank.stacks[0], threads=threads)
    assert reopen_last(done, elsewhere) == done


def test_a_log_names_gloos_mismatch_and_the_line_of_the_rank_that_was_told() -> None:
    """The rank that Gloo has aborted has no traceback."""
    verdict = of_log("sizes")
    assert verdict.kind == "failed"
    assert verdict.cause is not None
    assert verdict.cause.id == "collective-mismatch"
    assert "rank 1 had called all_reduce (train/failing.py:20)" in verdict.summary
    assert any("op.preamble.length <= op.nbytes. 8 vs 4" in one.says for one in verdict.cause.evidence)


def test_a_log_of_nccls_watchdog_names_what_each_rank_was_in() -> None:
    """Two ranks, one number, two sizes."""
    verdict = of_log("nccl_sizes")
    assert verdict.kind == "failed"
    assert verdict.cause is not None
    assert verdict.cause.id == "shape-mismatch"
    assert verdict.collective is not None
    assert (verdict.collective.op, verdict.collective.seq) == ("all_reduce", 41)
    assert "[999]" in verdict.summary
    assert "[1000]" in verdict.summary


def test_a_log_with_an_error_of_a_ranks_own_names_that() -> None:
    """The other rank's lost connection is what came of it."""
    verdict = of_log("value")
    assert verdict.kind == "healthy"
    assert "rank 1 failed with an error of its own: ValueError" in verdict.summary


def test_a_log_of_a_rank_that_has_left_says_where_the_other_one_was() -> None:
    """Who left, and that it did so in order, no line tells."""
    verdict = of_log("leaves")
    assert verdict.kind == "healthy"
    assert "rank 0 lost its connection in all_reduce (train/failing.py:98)" in verdict.summary


def test_a_log_of_an_attempt_that_was_repeated_is_of_the_last_one() -> None:
    """What the first attempt failed of is over."""
    lines = (FAILED / "sizes.log").read_text().splitlines()
    assert parse_failure_log(lines, job="job", at_ns=1) is not None
    again = [*lines, "[default] Worker group FAILED. 3/3 attempts left; will restart worker group"]
    assert parse_failure_log(again, job="job", at_ns=1) is None


@pytest.mark.parametrize("name", ["sizes", "nccl_sizes", "value"])
def test_a_log_that_breaks_off_anywhere_is_read(name: str) -> None:
    """Up to each line, and with lines that are cut."""
    lines = (FAILED / f"{name}.log").read_text().splitlines()
    for count in range(len(lines) + 1):
        for part in (lines[:count], [line[: len(line) // 2] for line in lines[:count]]):
            capture = parse_failure_log(part, job="job", at_ns=1)
            assert capture is None or diagnose(capture).verdict.kind in {"failed", "healthy"}
