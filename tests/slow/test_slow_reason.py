"""Why a rank is late, by two profiles: the line and the kind of reason, or neither."""

from __future__ import annotations

import msgspec
import pytest

from hangwatch.diagnosis.slow import describe_lateness, diagnose_slow
from hangwatch.model.devices import Gpu
from hangwatch.model.incident import Lateness, SlowReason
from hangwatch.model.slowness import Profile, ProfiledStack, SlowRank
from hangwatch.model.stacks import Frame
from hangwatch.slow.reason import Reason, find_reason, runs_out_first, works_longer

FILE = "/srv/train/train.py"
MAIN = Frame("main", FILE, 90)
READ = (Frame("read", FILE, 20), Frame("train", FILE, 50), MAIN)
STEP = (Frame("train", FILE, 60), MAIN)
LOADER = (
    Frame("_next_data", "/opt/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 5),
    Frame("train", FILE, 50),
    MAIN,
)
HELPER = (Frame("work", FILE, 5), Frame("loss", FILE, 8))
ENDS = Frame("all_reduce", "/opt/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 3252)
WAITING = (ENDS, Frame("train", FILE, 70), MAIN)
LOCKED = (Frame("wait", "/usr/lib/python3.11/threading.py", 320), Frame("train", FILE, 50), MAIN)


def profile(rank: int, shares: dict[tuple[Frame, ...], float], samples: int = 200, **seen: float) -> Profile:
    """A profile of these stacks."""
    return Profile(rank, samples, tuple(ProfiledStack(f, s) for f, s in shares.items()), **seen)


def slowness(late: Profile, usual: Profile, lost: float = 0.25) -> SlowRank:
    """Rank 1 loses a quarter of each step."""
    return SlowRank(Lateness(1, lost, 0.1, 0.33, (0, 2, 3), 40, 60, "Rank 1 is late."), 5, (late, usual))


@pytest.mark.parametrize(
    ("late", "usual", "kind", "line"),
    [
        (
            profile(1, {READ: 0.3, STEP: 0.7}, reading=0.3),
            profile(0, {READ: 0.02, STEP: 0.98}, reading=0.0),
            "input",
            20,
        ),
        (profile(1, {LOADER: 0.3, STEP: 0.7}), profile(0, {LOADER: 0.02, STEP: 0.98}), "input", 50),
        (profile(1, {LOCKED: 0.3, STEP: 0.7}), profile(0, {LOCKED: 0.02, STEP: 0.98}), "lock", 50),
        (
            profile(1, {READ: 0.3, STEP: 0.7}, sleeping=0.3),
            profile(0, {READ: 0.02, STEP: 0.98}, sleeping=0.0),
            "sleep",
            20,
        ),
        # A bare ``with lock:`` shows no frame of its own; who waits in operations waits for a futex, too.
        (
            profile(1, {READ: 0.3, STEP: 0.5, WAITING: 0.2}, locked=0.5),
            profile(0, {READ: 0.02, STEP: 0.5, WAITING: 0.48}, locked=0.48),
            "lock",
            20,
        ),
        (
            profile(1, {READ: 0.3, STEP: 0.5, WAITING: 0.2}, locked=0.2),
            profile(0, {READ: 0.02, STEP: 0.5, WAITING: 0.48}, locked=0.48),
            "unknown",
            20,
        ),
        (
            profile(1, {READ: 0.3, STEP: 0.7}, running=0.9),
            profile(0, {READ: 0.02, STEP: 0.98}, running=0.6),
            "compute",
            20,
        ),
        # Both wait for cores as much as they have to run.
        (
            profile(1, {READ: 0.6, STEP: 0.4}, running=0.9, queued=0.45),
            profile(0, {STEP: 1.0}, running=0.3, queued=0.15),
            "compute",
            20,
        ),
        # All lines take longer, because it gets no core; the line tells nothing then, nor that it runs.
        (
            profile(1, {STEP: 1.0}, running=0.9, queued=0.3),
            profile(0, {STEP: 1.0}, running=0.6, queued=0.0),
            "no_core",
            None,
        ),
        (
            profile(1, {STEP: 1.0}, running=0.9, throttled=0.3),
            profile(0, {STEP: 1.0}, running=0.6, throttled=0.0),
            "throttled",
            None,
        ),
        # Within the backward both ranks show one line.
        (profile(1, {STEP: 1.0}), profile(0, {STEP: 1.0}), "unknown", None),
        # A line that both show from many places differs by chance, and is deeper than the one of the excess.
        (
            profile(1, {READ: 0.15, (*HELPER, *STEP): 0.56, STEP: 0.29}),
            profile(0, {(*HELPER, *STEP): 0.43, STEP: 0.57}),
            "unknown",
            20,
        ),
        # Two lines share the excess, which one has called; and a few samples differ by chance.
        (profile(1, {READ: 0.1, LOADER: 0.1, STEP: 0.8}), profile(0, {STEP: 1.0}), "unknown", 50),
        (profile(1, {READ: 0.3, STEP: 0.7}, 10), profile(0, {READ: 0.1, STEP: 0.9}, 10), "unknown", None),
        # A busy machine slows down the rest as well: the line has most of the excess.
        (profile(1, {LOADER: 0.3, STEP: 0.5, WAITING: 0.2}), profile(0, {STEP: 0.4, WAITING: 0.6}), "input", 50),
    ],
)
def test_reasons(late: Profile, usual: Profile, kind: SlowReason, line: int | None) -> None:
    """The deepest line that has the excess, and what it does there."""
    found = find_reason(slowness(late, usual))
    assert (found.kind, found.frame.line if found.frame else None) == (kind, line)


def reason_of(slow: SlowRank) -> SlowReason | None:
    """The reason that the incident document has."""
    lateness = describe_lateness(slow)
    return lateness.reason if lateness is not None else None


def test_the_verdict() -> None:
    """A warning that names the rank, its line and the reason; without profiles it names the rank alone."""
    known = slowness(profile(1, {READ: 0.3, STEP: 0.7}, reading=0.3), profile(0, {READ: 0.02, STEP: 0.98}, reading=0.0))
    verdict, onset_ns = diagnose_slow(known, 7)
    assert onset_ns == 5
    assert (verdict.kind, verdict.severity, verdict.proven) == ("slow", "warning", False)
    assert (verdict.culprit_ranks, verdict.waiting_ranks) == ((1,), (0, 2, 3))
    assert verdict.summary == "Rank 1 is late."
    assert verdict.divergence is not None
    assert verdict.divergence.culprit is not None
    assert (verdict.divergence.culprit.line, verdict.divergence.culprit.ranks) == (20, (1,))
    assert verdict.cause is not None
    assert verdict.cause.explanation == (
        "Rank 1 waits for input (a DataLoader, a file, a pipe or a connection): it spends 28 percentage points more of its"
        " time at train/train.py:20 than rank 0, which is as fast as most."
    )
    assert reason_of(known) == "input"
    hot = msgspec.structs.replace(known, gpus=(Gpu(3, clock_mhz=1230, slowed_by=("heat",)), Gpu(0, clock_mhz=1980)))
    assert reason_of(hot) == "input"  # it explains the line
    alone = SlowRank(known.lateness, 5)
    assert diagnose_slow(alone, 7)[0].divergence is None
    assert reason_of(alone) == "unknown"


@pytest.mark.parametrize(
    ("late", "usual", "works"),
    [
        # It computes while the other one waits, in places without a line; or at a line of its own; or it reads.
        (profile(1, {STEP: 0.8, WAITING: 0.2}), profile(0, {STEP: 0.5, WAITING: 0.5}), True),
        (profile(1, {READ: 0.3, STEP: 0.5, WAITING: 0.2}), profile(0, {STEP: 0.5, WAITING: 0.5}), True),
        (profile(1, {STEP: 1.0}, running=0.9), profile(0, {STEP: 1.0}, running=0.6), True),
        # It waits as long, for what comes over a slow link; too few looks; within the backward nothing shows.
        (profile(1, {STEP: 0.5, WAITING: 0.5}), profile(0, {STEP: 0.45, WAITING: 0.55}), False),
        (profile(1, {STEP: 0.8, WAITING: 0.2}, 10), profile(0, {STEP: 0.5, WAITING: 0.5}, 10), False),
        (profile(1, {STEP: 1.0}, running=0.5), profile(0, {STEP: 1.0}, running=0.5), False),
    ],
)
def test_who_waits_in_operations_does_not_work(late: Profile, usual: Profile, works: bool) -> None:
    """Behind a slow link a rank comes late out of its operations, and is not to blame."""
    assert works_longer(slowness(late, usual)) == works


def test_an_operation_is_no_line_that_takes_the_excess() -> None:
    """It takes longer for the rank behind a slow link."""
    late = profile(1, {STEP: 0.4, WAITING: 0.6}), profile(0, {STEP: 0.8, WAITING: 0.2})
    assert find_reason(slowness(*late)) == Reason("unknown")
    assert not works_longer(SlowRank(slowness(*late).lateness, 5))


@pytest.mark.parametrize(
    ("late", "clocks"),
    [
        (Gpu(3, clock_mhz=1230, slowed_by=("heat",)), "1230 MHz, because of heat (1980 MHz on rank 0)"),
        (Gpu(3, clock_mhz=1230), "1230 MHz (1980 MHz on rank 0)"),
        (Gpu(3, clock_mhz=1900, slowed_by=("its power limit",)), None),  # by too little
        (Gpu(3, clock_mhz=345, slowed_by=("idle",)), None),
        (Gpu(3), None),
    ],
)
def test_a_gpu_with_slower_clocks(late: Gpu, clocks: str | None) -> None:
    """It explains a rank that shows nothing else; on the host it waits for its device where the others do."""
    both = profile(1, {STEP: 1.0}, running=1.0), profile(0, {STEP: 1.0}, running=1.0)
    found = msgspec.structs.replace(slowness(*both), gpus=(late, Gpu(0, clock_mhz=1980)))
    cause = diagnose_slow(found, 7)[0].cause
    assert cause is not None
    assert reason_of(found) == ("gpu_clocks" if clocks else "unknown")
    assert (clocks or "nothing that hangwatch reads") in cause.explanation


@pytest.mark.parametrize(("fetching", "first"), [(0.97, True), (0.4, False), (None, False)])
def test_a_rank_that_runs_out_of_input_first(fetching: float | None, first: bool) -> None:
    """It is to blame only if the workers of the usual rank have time to spare; None: they load nothing ahead."""
    late = profile(1, {LOADER: 0.6, STEP: 0.4}, fetching=0.99)
    usual = profile(0, {LOADER: 0.02, STEP: 0.98})
    assert runs_out_first(slowness(late, msgspec.structs.replace(usual, fetching=fetching))) == first
    queue = (Frame("get", "/usr/lib/python3.11/queue.py", 171), *LOCKED[1:])
    for stack, others in (LOCKED, False), (queue, True):
        assert runs_out_first(slowness(profile(1, {stack: 0.6, STEP: 0.4}), usual)) == others
    computes = profile(1, {READ: 0.6, STEP: 0.4}, running=0.9, fetching=0.99)
    assert not runs_out_first(slowness(computes, profile(0, {STEP: 1.0}, running=0.4, fetching=0.97)))
