"""Silent failures: what training says of its steps, and the cause that is named, or none."""

from __future__ import annotations

import math
import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trainings import RECORDED, ZERO2, cause_of, judge, read_lines, recorded, series, steps, verdict_on

from hangwatch.model.telemetry import LoggedStep, RankSteps, TrainerSettings, TrainingSeries
from hangwatch.training.analysis.case import build_training_case
from hangwatch.training.analysis.learning import EVIDENCE_STEPS, read_learning

NAN, INF = math.nan, math.inf
#: The machine may be slow; the examples are the same each time.
SETTINGS = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
LEVEL = [3.9, 3.88, 3.9, 3.85, 3.87]

_RECORDED = {
    "none": None,
    "nan-weights": "loss-zero-lr-frozen",
    "masked": "loss-zero-masked-labels",
    "images": "loss-nan-data-mix",
    "images-unfiltered": "loss-nan",
}


@pytest.mark.parametrize("release", ["4.57", "5"])
@pytest.mark.parametrize("fault", _RECORDED)
def test_recorded_output_gets_its_cause(release: str, fault: str) -> None:
    """The Trainer's own lines, as transformers 4.57.6 and 5.23 print them, are enough to name the fault they were made with."""
    assert judge(recorded(f"transformers-{release}-alone-{fault}"), world_size=1) == _RECORDED[fault]


@pytest.mark.parametrize("fault", [fault for fault, cause in _RECORDED.items() if cause])
def test_recorded_beats_get_their_cause(fault: str) -> None:
    """What a probe read in real runs under transformers 4.57.6, merged with the output, as their bundles hold it."""
    data = (RECORDED / f"transformers-4.57.6-beats-{fault}.json").read_bytes()
    reported = msgspec.convert(msgspec.json.decode(data)["training"], TrainingSeries, strict=False)
    assert cause_of(verdict_on(reported, 1)) == _RECORDED[fault]
    assert reported.setups[0].versions["transformers"] == "4.57.6"


def test_every_recording_is_asked_about() -> None:
    """No recorded run lies there unused."""
    assert {p.stem for p in RECORDED.glob("*.log")} == {
        f"transformers-{r}-alone-{f}" for r in ("4.57", "5") for f in _RECORDED
    }


def test_a_gradient_that_was_bad_first_is_the_overlap() -> None:
    """Several ranks, ZeRO-2, overlap_comm on, and a bad gradient in a step whose loss was good."""
    lines = steps([*LEVEL, 3.86, 0, 0, 0], [1.2] * 5 + [NAN] * 4)
    assert judge(lines, deepspeed=ZERO2, deepspeed_version="0.19.8") == "loss-zero-overlap-comm"


def test_the_same_without_overlap_is_poisoned_weights() -> None:
    """With overlap_comm off, or one rank, nobody blames the overlap."""
    lines = steps([*LEVEL, 3.86, 0, 0, 0], [1.2] * 5 + [NAN] * 4)
    off = msgspec.structs.replace(ZERO2, overlap_comm=False)
    assert judge(lines, deepspeed=off) == "weights-poisoned"
    assert judge(lines, deepspeed=ZERO2, world_size=1) == "weights-poisoned"
    assert judge(lines) == "weights-poisoned"


def test_a_loss_that_was_bad_first_is_the_data() -> None:
    """Overlap on or not: no gradient of that batch was bad before its loss was."""
    lines = steps([*LEVEL, 0, 0, 0], [1.2] * 5 + [NAN] * 3)
    assert judge(lines, deepspeed=ZERO2) == "loss-nan-data-mix"
    assert judge(lines) == "loss-nan-data-mix"


def test_skipped_steps_leave_the_data_to_blame() -> None:
    """DeepSpeed that skips such steps freezes the learning rate from then on, which is not from the start on."""
    lines = steps(
        [*LEVEL, 0, 0, 0], [1.2] * 5 + [INF] * 3, [1e-3] * 3 + [9e-4, 8e-4] + [7e-4] * 3, skipped=[0] * 5 + [1, 2, 3]
    )
    assert judge(lines, deepspeed=msgspec.structs.replace(ZERO2, check_grad_overflow=True)) == "loss-nan-data-mix"


@pytest.mark.parametrize("norm", [-1.0, 1.0, math.sqrt(2), 1.414, math.sqrt(7)])
def test_a_norm_that_stands_for_one_that_is_not_finite(norm: float) -> None:
    """DeepSpeed's -1, and the constant root of the number of groups, mean what nan means."""
    lines = steps([*LEVEL, 0, 0, 0], [1.2, 1.3, 1.1, 1.25, 1.2, norm, norm, norm])
    assert judge(lines, deepspeed=ZERO2, world_size=8) is not None


def test_lines_of_a_release_without_gradient_norms() -> None:
    """The report of InternLM-XComposer#170: two machines, each line twice, no gradient norm, a cliff."""
    text = """
        {'loss': 1.7172, 'learning_rate': 7.874015748031497e-08, 'epoch': 0.0}
        {'loss': 1.7636, 'learning_rate': 1.5748031496062994e-07, 'epoch': 0.0}
        {'loss': 1.7636, 'learning_rate': 1.5748031496062994e-07, 'epoch': 0.0}
        {'loss': 1.7367, 'learning_rate': 2.362204724409449e-07, 'epoch': 0.0}
        {'loss': 1.7638, 'learning_rate': 3.149606299212599e-07, 'epoch': 0.0}
        {'loss': 0.0, 'learning_rate': 3.937007874015748e-07, 'epoch': 0.0}
        {'loss': 0.0, 'learning_rate': 3.937007874015748e-07, 'epoch': 0.0}
        {'loss': 0.0, 'learning_rate': 4.724409448818898e-07, 'epoch': 0.0}
    """
    assert judge(read_lines(text), deepspeed=ZERO2, world_size=16) == "loss-zero-overlap-comm"
    assert judge(read_lines(text), world_size=16) == "loss-nan-data-mix"


def test_lines_far_apart_do_not_tell_the_order() -> None:
    """Ten steps a line: the mean is of the good ones, the norm of the last; the overlap is likely and no more."""
    lines = steps([*LEVEL, 1.7, 0, 0, 0], [1.2] * 5 + [NAN] * 4, every=10)
    reported = series(lines, deepspeed=ZERO2)
    case, found = build_training_case(reported, 8), verdict_on(reported, 8)
    assert case is not None
    assert found is not None
    assert case.fault.order is None
    assert cause_of(found) == "loss-zero-overlap-comm"
    assert "loss-nan-data-mix" in {cause.id for cause in found.alternatives}


def test_a_share_of_the_loss_does_not_tell_the_order() -> None:
    """Half of the usual loss on two ranks: one of them put in a 0 for its NaN, so a batch may have been first."""
    learning = read_learning(series(steps([*LEVEL, 1.94, 0, 0, 0], [1.2] * 5 + [NAN] * 4)), 0, 2)
    assert learning.fault is not None
    assert learning.fault.order is None


def test_a_divergence_is_not_the_overlap() -> None:
    """Gradients that grew tenfold before speak for the learning rate and the data."""
    lines = steps([3.9, 3.9, 4.0, 9.0, 60.0, 0, 0, 0], [1.0, 1.2, 1.1, 40.0, 900.0, NAN, NAN, NAN], every=5)
    assert judge(lines, deepspeed=ZERO2, world_size=8) == "loss-nan-data-mix"


def test_gradients_that_are_never_finite() -> None:
    """A finite loss and every step skipped: found after ten steps, and after fifty where a loss scale may be searched for."""
    bf16 = msgspec.structs.replace(ZERO2, overlap_comm=False)
    lines = steps([3.9, 3.8] * 6, [INF] * 12, [0.0] * 12, skipped=range(1, 13))
    assert judge(lines, deepspeed=bf16) == "gradients-never-finite"
    assert judge(lines[:9], deepspeed=bf16) is None
    assert judge(lines, deepspeed=msgspec.structs.replace(bf16, dtype="fp16")) is None


def test_a_run_joined_late() -> None:
    """Without its beginning nothing is said about the first step, unless as many steps were skipped as were taken."""
    late = {"every": 1, "first": 500}
    assert judge(steps([0.0] * 4, [NAN] * 4, **late)) == "weights-poisoned"
    skipped = steps([0.0] * 4, [INF] * 4, [0.0] * 4, skipped=range(500, 504), **late)
    assert judge(skipped) == "loss-zero-lr-frozen"


def test_a_rank_that_differs_in_kind_is_named() -> None:
    """One rank's own loss is NaN and the others' are finite."""
    good, bad = steps(LEVEL), steps([3.9, 3.8, NAN, NAN, NAN])
    reported = TrainingSeries(at_ns=0, steps=good, ranks=(RankSteps(1, good), RankSteps(2, bad)))
    found = verdict_on(reported, 3)
    assert found is not None
    assert found.culprit_ranks == (2,)
    assert "rank 2" in found.summary
    all_bad = TrainingSeries(at_ns=0, steps=bad, ranks=(RankSteps(1, bad),))
    found = verdict_on(all_bad, 2)
    assert found is not None
    assert found.culprit_ranks == ()


_HEALTHY = {
    "first line of a warm-up": steps(LEVEL, rates=[0.0, 1e-4, 2e-4, 3e-4, 4e-4]),
    "small and moving": steps([3e-5, 2e-5, 4e-5, 1e-5, 2e-5]),
    "negative": steps([-1.0, -1.2, -1.1, -1.3]),
    "learnt by heart": steps([0.9, 0.2, 0.02, 0.001, 0, 0, 0, 0], [1, 0.5, 0.1, 0.01, 0, 0, 0, 0]),
    "learnt by heart, no norms": steps([2.3, 1.1, 0.4, 0.1, 0, 0, 0], [None] * 7),
    "reinforcement learning at its start": steps([0.0] * 6, [0.31, 0.28, 0.4, 0.33, 0.29, 0.3]),
    "zero at times": steps([0.2, 0, 0.3, 0, 0, 0.1, 0, 0, 0], [1, 0, 1, 0, 0, 1, 0, 0, 0]),
    "two bad lines": steps([*LEVEL, NAN, NAN]),
    "one skipped step": steps([*LEVEL, 3.8, 3.7, 3.7], [1.0] * 5 + [INF, 1.0, 1.1]),
    "a bad stretch that is over": steps([3.9, NAN, NAN, NAN, NAN, 3.8, 3.7, 3.6]),
    "a loss scale searched for": steps([3.9, 3.8] * 10, [INF] * 17 + [1.0, 1.1, 1.2]),
    "an overflow in every line of many steps": tuple(
        msgspec.structs.replace(line, overflow=True) for line in steps([3.9, 3.7] * 20, every=10)
    ),
    "constant norm, finite loss": steps(LEVEL, [1.0] * 5),
    "resumed": steps([3.2, 3.1, 3.2, 3.0], first=1200, every=10),
    "an evaluation only": (LoggedStep("transformers", 1, step=10, epoch=1.0),) * 5,
    "nothing at all": (),
}


@pytest.mark.parametrize("case", _HEALTHY)
def test_no_finding(case: str) -> None:
    """What looks alike and is well is left alone, under the very configuration that is under suspicion."""
    assert judge(_HEALTHY[case], deepspeed=ZERO2, world_size=8) is None


def test_equal_rewards_are_no_masked_labels() -> None:
    """A trainer of TRL's that learns from rewards has a loss of 0 while they are all equal."""
    lines = steps([0.0] * 6, [0.0] * 6)
    assert judge(lines) == "loss-zero-masked-labels"
    trainer = TrainerSettings("transformers", name="GRPOTrainer")
    assert judge(lines, trainer=trainer) is None
    assert judge([msgspec.structs.replace(line, texts={"reward": "3.0"}) for line in lines]) is None
    assert judge(steps([*LEVEL, 0, 0, 0], [1.2] * 5 + [NAN] * 3), trainer=trainer) == "loss-nan-data-mix"


@SETTINGS
@given(st.lists(st.floats(1e-6, 1e6) | st.floats(-1e6, -1e-6), max_size=40), st.integers(1, 64))
def test_a_finite_loss_with_finite_gradients_is_never_found(losses: list[float], world_size: int) -> None:
    """Whatever the curve."""
    assert judge(steps(losses), deepspeed=ZERO2, world_size=world_size) is None


_ANY = st.none() | st.floats() | st.sampled_from([0.0, -1.0, NAN, INF, 1.0])
_LINES = st.lists(st.tuples(_ANY, _ANY, _ANY, st.none() | st.integers(0, 99), st.none() | st.booleans()), max_size=30)


@SETTINGS
@given(_LINES, st.none() | st.integers(1, 4096))
def test_any_series_is_judged_without_an_error(values: list[tuple], world_size: int | None) -> None:  # type: ignore[type-arg]
    """Nonsense in, a verdict or none out; and fewer bad lines than are evidence give none."""
    lines = tuple(
        LoggedStep("report", i, step=i, loss=v, grad_norm=g, learning_rate=r, skipped_steps=n, overflow=o)
        for i, (v, g, r, n, o) in enumerate(values, 1)
    )
    reported = series(lines, deepspeed=ZERO2)
    case, found = build_training_case(reported, world_size), verdict_on(reported, world_size)
    if found is not None:
        assert case is not None
        assert len(case.fault.bad) >= EVIDENCE_STEPS
        assert found.kind == "silent_failure"
        assert not found.proven
        assert 0 < found.cause.confidence < 1  # type: ignore[union-attr]


def test_the_ranks_order_changes_nothing() -> None:
    """Which rank's series comes first is no matter."""
    good, bad = steps(LEVEL), steps([3.9, 3.8, NAN, NAN, NAN])
    ranks = [RankSteps(r, bad if r == 5 else good) for r in range(1, 8)]
    verdicts = set()
    for seed in range(4):
        random.Random(seed).shuffle(ranks)
        found = verdict_on(TrainingSeries(at_ns=0, steps=good, ranks=tuple(ranks)), 8)
        assert found is not None
        verdicts.add(found.culprit_ranks)
    assert verdicts == {(5,)}
