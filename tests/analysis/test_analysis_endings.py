"""A job that does not end, though nobody in it waits for anybody: one rank has died, and the others stay at their end."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.analysis.case import build_case
from hangwatch.analysis.patience import fixed_patience
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, RankCapture
from hangwatch.model.collectives import Group
from hangwatch.model.incident import Verdict
from hangwatch.model.processes import ExitStatus
from hangwatch.model.stacks import Frame
from worlds import collective_frames, operation, rank, world

SHUTDOWN = (Frame("_shutdown", "/usr/lib/python3.11/threading.py", 1590),)
TRAINING = (Frame("main", "/srv/train/train.py", 40, "time.sleep(60)"), Frame("<module>", "/srv/train/train.py", 90))
CLOSED = ("RuntimeError: Connection closed by peer",)


def _gone(number: int, **how: int) -> RankCapture:
    """A rank whose process has ended so; without a word, where nobody saw how."""
    one = rank(number, ())
    end = ExitStatus(**how) if how else None
    samples = tuple(msgspec.structs.replace(p, state="gone", exit=end) for p in one.processes)
    return msgspec.structs.replace(one, processes=samples, stacks=())


def _staying(number: int, *, failed: bool = True) -> RankCapture:
    return msgspec.structs.replace(rank(number, (), SHUTDOWN), log_error=CLOSED if failed else ())


def test_who_died_is_named_and_those_that_stay_are_not() -> None:
    """They failed for want of it, and their logs would name them."""
    verdict = diagnose(world(_staying(0), _gone(1, signal=6), _staying(2))).verdict
    assert (verdict.kind, verdict.proven) == ("rank_lost", False)
    assert (verdict.culprit_ranks, verdict.waiting_ranks) == ((1,), ())
    assert verdict.cause is not None
    assert verdict.cause.id == "rank-died"
    assert verdict.summary.startswith("The job does not end because of rank 1: ")


@pytest.mark.parametrize(
    ("ranks", "culprits"),
    [
        ((_staying(0, failed=False), _gone(1, code=1)), (1,)),
        ((_staying(0), _gone(1)), (1,)),
        ((_staying(0, failed=False), _gone(1)), ()),
        ((_staying(0), _gone(1, code=0)), ()),
        ((_staying(0), _gone(1, code=0), _gone(2, signal=9)), (2,)),
        ((_gone(0, signal=9), _gone(1, code=1)), ()),
        ((_staying(0), _gone(1, signal=9), rank(2, (), TRAINING)), ()),
        ((_staying(0), _gone(1, signal=9), rank(2, (), SHUTDOWN, busy=True)), ()),
    ],
)
def test_ranks_linger_only_after_a_failure(ranks: tuple[RankCapture, ...], culprits: tuple[int, ...]) -> None:
    """Not a rank that ended well, or may have; not while another is at work, at its end or elsewhere; not where all is over."""
    blame = build_case(world(*ranks)).blame
    assert blame.culprits == culprits
    assert (blame.shape == "lingering") is bool(culprits)


def test_what_a_rank_died_in_does_not_count_as_a_wait() -> None:
    """It may have waited for half an hour before it gave up; those that stay have only just come to their end."""
    group = Group("0", (0, 1), "default_pg")
    died = msgspec.structs.replace(_gone(1, signal=6), flight=rank(1, (operation(1, group, 1, done=False),)).flight)
    found = diagnose(world(_staying(0), died), patience=fixed_patience(5.0))
    assert found.case.blame.shape == "lingering"
    assert found.case.onset_ns is None
    assert found.verdict.kind == "healthy"


def test_who_has_called_more_than_most_is_named_where_most_have_ended_well() -> None:
    """Ranks that ended in good order are no culprits for it; a tie, a failure or a member that is elsewhere changes that."""
    group = Group("0", (0, 1, 2, 3), "default_pg")

    def found(*how: dict[str, int], last: RankCapture | None = None) -> Verdict:
        calls = (operation(1, group, 1), operation(2, group, 2, done=False))
        staying = [rank(number, calls, collective_frames("all_reduce")) for number in range(4 - len(how))]
        gone = [_gone(4 - len(how) + number, **end) for number, end in enumerate(how)]
        return diagnose(world(*staying[:-1], last or staying[-1], *gone)).verdict

    well = {"code": 0}
    left = found(well, well, well)
    assert (left.kind, left.proven, left.culprit_ranks, left.waiting_ranks) == ("deadlock", True, (0,), ())
    assert left.summary.startswith("Rank 0 waits in all_reduce of default_pg, but most ranks of the group have ended")
    assert left.cause is not None
    assert left.cause.id == "ranks-diverged"
    assert found(well, well).culprit_ranks == (2, 3)
    assert found(well, well, {"code": 1}).culprit_ranks == (1, 2, 3)
    assert found(well, well, {"signal": 9}).culprit_ranks == (1, 2, 3)
    busy = rank(1, (operation(1, group, 1),), TRAINING, busy=True)
    assert found(well, well, last=busy).culprit_ranks == (1, 2, 3)


def test_it_takes_patience() -> None:
    """What is at its end may be sending off its logs, or be ended by its launcher."""
    capture = world(_staying(0), _gone(1, signal=6))
    since = min(p.at_ns for p in capture.ranks[0].processes)

    def kind(after_s: float) -> str:
        later = Capture(capture.job, since + int(after_s * 1e9), _later(capture.ranks, since, after_s))
        return diagnose(later, patience=fixed_patience(30.0)).verdict.kind

    assert kind(20.0) == "healthy"
    assert kind(40.0) == "rank_lost"


def _later(ranks: tuple[RankCapture, ...], since: int, after_s: float) -> tuple[RankCapture, ...]:
    """The ranks as they are seen from then on, twice a second, and nothing of them changes."""
    times = [since + int(at * 5e8) for at in range(int(after_s * 2) + 1)]
    return tuple(
        msgspec.structs.replace(
            one,
            processes=tuple(msgspec.structs.replace(one.processes[-1], at_ns=ns) for ns in times),
            stacks=tuple(msgspec.structs.replace(one.stacks[-1], at_ns=ns) for ns in times) if one.stacks else (),
        )
        for one in ranks
    )
