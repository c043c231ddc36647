"""What the diagnosis says of real hangs, recorded by ``tests/fixtures/record_captures.py``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from hangwatch.analysis.case import Case
from hangwatch.diagnosis import registry
from hangwatch.diagnosis.verdict import diagnose
from recorded import NAMES, load, verdict_of

#: Name of the capture -> kind, culprits, and the cause that comes first.
EXPECTED = {
    "tuple_labels": ("deadlock", (1,), "tuple-labels-gather"),
    "tuple_labels_silent": ("deadlock", (1,), "tuple-labels-gather"),
    "tuple_labels_without_probe": (None, (1,), "tuple-labels-gather"),
    "tuple_labels_zero": ("deadlock", (1,), "tuple-labels-gather"),
    "rank_conditional": ("deadlock", (0,), "ranks-diverged"),
    "rank_conditional_without_probe": (None, (0,), "ranks-diverged"),
    "checkpoint_on_rank0": ("deadlock", (0,), "checkpoint-on-some-ranks"),
    "save_state": ("deadlock", (0,), "checkpoint-on-some-ranks"),
    "uneven_inputs": ("deadlock", (2,), "ranks-diverged"),
    "uneven_epoch": ("deadlock", (1,), "ranks-diverged"),
    "uneven_while": ("deadlock", (0,), "ranks-diverged"),
    "skipped_step": ("deadlock", (1,), "ranks-diverged"),
    "jumped_turn": ("deadlock", (2,), "ranks-diverged"),
    "swallowed_error": ("deadlock", (2,), "ranks-diverged"),
    "labels_none": ("deadlock", (2,), "tuple-labels-gather"),
    "labels_absent_zero2": ("deadlock", (2,), "tuple-labels-gather"),
    "nested_gather": ("deadlock", (0,), "tuple-labels-gather"),
    "gather_in_loop": ("deadlock", (0,), "ranks-diverged"),
    "validation_on_main": ("deadlock", (0,), "ranks-diverged"),
    "guard_below": ("deadlock", (0,), "ranks-diverged"),
    "empty_on_one": ("deadlock", (1,), "ranks-diverged"),
    "keyed_loop": ("deadlock", (3,), "ranks-diverged"),
    "own_evaluation": ("deadlock", (1,), "ranks-diverged"),
    "silent_pair": ("deadlock", (0,), "ranks-diverged"),
    "two_faults": ("deadlock", (1, 5), "ranks-diverged"),
    "cut_turn": ("deadlock", (1,), "ranks-diverged"),
    "left_out_branch": ("deadlock", (2,), "ranks-diverged"),
    "early_arrival": ("deadlock", (2,), "ranks-diverged"),
    "roles": ("deadlock", (2,), "ranks-diverged"),
    "silent_shift": ("deadlock", (1,), "ranks-diverged"),
    "layer_drop": ("deadlock", (1,), "sharded-forward-divergence"),
    "tensor_parallel": ("deadlock", (2,), "sharded-forward-divergence"),
    "own_generate": ("deadlock", (1,), "generate-length-divergence"),
    "role_receive": ("deadlock", (0,), "p2p-mismatch"),
    "ring_of_pairs": ("deadlock", (0, 1, 2, 3), "group-creation-mismatch"),
    "two_orders": ("deadlock", (0, 1), "group-order-inversion"),
    "main_process_first": ("deadlock", (0,), "ranks-diverged"),
    "branch_on_data": ("deadlock", (2,), "ranks-diverged"),
    "gather_on_main": ("deadlock", (0,), "ranks-diverged"),
    "guarded_helper": ("deadlock", (0,), "ranks-diverged"),
    "group_order": ("deadlock", (0, 1), "group-order-inversion"),
    "group_ring": ("deadlock", (0, 1, 2), "group-order-inversion"),
    "group_creation": ("deadlock", (2,), "group-creation-mismatch"),
    "p2p": ("deadlock", (0, 1), "p2p-mismatch"),
    "wrong_peer": ("deadlock", (1, 2), "p2p-mismatch"),
    "sharded_branch": (None, (0,), "sharded-forward-divergence"),
    "generate_lengths": (None, (0,), "generate-length-divergence"),
    "early_exit": ("stall", (1,), "early-exit"),
    "raised": ("stall", (2,), "early-exit"),
    "killed": ("rank_lost", (2,), "rank-died"),
    "never_joined": ("rank_lost", (1,), "rank-died"),
    "missing_init": ("stall", (2,), "init-missing-rank"),
    "stopped_rank": ("stall", (1,), "rank-stopped"),
    "debugger": ("stall", (1,), "debugger"),
    "debugger_without_probe": ("stall", (1,), "debugger"),
    "prompt": ("stall", (0,), "debugger"),
    "blocked_io": ("stall", (1,), "blocked-io"),
    "blocked_io_without_probe": ("stall", (1,), "blocked-io"),
    "gil_held": ("stall", (1,), "gil-held"),
    "gil_held_without_probe": ("stall", (1,), "gil-held"),
    "dataloader": ("stall", (1,), "dataloader-stall"),
    "two_locks": ("stall", (1,), "lock-deadlock"),
    "two_roots": ("stall", (0, 1), "collective-mismatch"),
    "own_keys": ("stall", (0,), "unknown"),
    "lock_of_the_killed": ("stall", (1,), "lock-deadlock"),
    "fork_worker": ("stall", (1,), "fork-deadlock"),
    "fork_join": ("stall", (0,), "fork-deadlock"),
    "thread_died": ("stall", (2,), "thread-stall"),
    "thread_future": ("stall", (0,), "thread-stall"),
    "child_waits": ("stall", (1,), "child-stall"),
    "rank0_work": ("straggler", (0,), "rank0-work"),
    "compiling": ("straggler", (1,), "compile-skew"),
    "habitual_straggler": ("straggler", (2,), "straggler"),
    "busy_loop": ("straggler", (1,), None),
    "slow": (None, (1,), None),
}


def test_every_capture_has_an_expectation() -> None:
    """A capture nobody expects anything of would be dead weight, and an expectation without one no test."""
    assert set(NAMES) == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_names_the_cause_of_a_real_hang(name: str) -> None:
    """Kind, culprits and first cause of a recorded hang; None: a machine under load may see it either way."""
    kind, culprits, cause = EXPECTED[name]
    verdict = verdict_of(name)
    assert verdict.culprit_ranks == culprits
    assert kind is None or verdict.kind == kind
    assert verdict.cause is not None
    assert cause is None or verdict.cause.id == cause


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_cause_rests_on_evidence(name: str) -> None:
    """No hypothesis is a bare assertion: each has observations with text, an explanation, and something to do."""
    verdict = verdict_of(name)
    for cause in (verdict.cause, *verdict.alternatives):
        assert cause is not None
        assert 0.0 < cause.confidence < 1.0
        assert cause.explanation.endswith(".")
        assert cause.remedy
        assert cause.evidence
        assert all(e.source and e.says for e in cause.evidence)


def test_a_pair_that_went_through_is_where_the_ranks_diverged() -> None:
    """The lines and the number shown are of the first operation that came from two places, though it looked alike."""
    divergence = verdict_of("silent_pair").divergence
    assert divergence is not None
    assert divergence.seq == 140
    assert divergence.culprit is not None
    assert "full_tensor()" in (divergence.culprit.source or "")
    assert divergence.culprit.ranks == (0,)
    assert divergence.others is not None
    assert divergence.others.ranks == (1, 2)


def test_of_two_faults_both_are_named_and_one_is_shown_with_its_own_others() -> None:
    """Two groups hang each for itself; the lines side by side are of ranks that wait for each other."""
    verdict = verdict_of("two_faults")
    assert verdict.culprit_ranks == (1, 5)
    assert verdict.divergence is not None
    assert verdict.divergence.culprit is not None
    assert verdict.divergence.others is not None
    shown = set(verdict.divergence.culprit.ranks) | set(verdict.divergence.others.ranks)
    assert shown in ({0, 1, 2}, {3, 4, 5})


def test_a_forked_childs_stack_is_the_evidence() -> None:
    """What the child waits for, and that it has no thread of its own that could give it, is reported."""
    cause = verdict_of("fork_worker").cause
    assert cause is not None
    said = " ".join(e.says for e in cause.evidence)
    assert "with journal:" in said
    assert "1 thread" in said


def test_a_thread_in_a_call_is_named_where_the_main_thread_waits_for_it() -> None:
    """The pool's thread and the line it stands in are evidence; a dead thread leaves none, and that is said."""
    stuck, dead = (verdict_of(name).cause for name in ("thread_future", "thread_died"))
    assert stuck is not None
    assert dead is not None
    assert any("store.recv(16)" in e.says for e in stuck.evidence)
    assert "none is at work" in dead.explanation


def test_no_rule_raises() -> None:
    """None does on any capture; one that did would be left out and counted, and the verdict would stand without it."""
    registry.failed.clear()
    for name in NAMES:
        diagnose(load(name))
    assert not registry.failed


def test_a_rule_that_raises_costs_nobody_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted by its name."""

    def broken(case: Case) -> None:
        raise KeyError(case.world)

    monkeypatch.setattr(registry, "RULES", (broken, *registry.RULES))
    monkeypatch.setattr(registry, "failed", Counter())
    verdict = diagnose(load("rank_conditional")).verdict
    assert verdict.cause is not None
    assert verdict.cause.id == "ranks-diverged"
    assert registry.failed == {"broken": 1}


def test_same_evidence_is_not_reported_twice() -> None:
    """An observation is listed once, however many helpers came upon it."""
    for name in EXPECTED:
        cause = verdict_of(name).cause
        assert cause is not None
        assert len(set(cause.evidence)) == len(cause.evidence), name


def test_captures_bear_no_path_of_the_machine_they_were_recorded_on() -> None:
    """Fixtures look as if recorded on another machine."""
    home = str(Path(__file__).resolve().parents[2])
    for name in NAMES:
        assert (
            home not in (Path(__file__).resolve().parent.parent / "fixtures" / "captures" / f"{name}.json").read_text()
        )


def test_an_exception_in_the_log_tells_a_failure_from_an_early_exit() -> None:
    """The same stack, in the interpreter's shutdown, has another cause where the log ends in a traceback."""
    capture = load("raised")
    reported = ("Traceback (most recent call last):", '  File "train.py", line 15, in <module>', "RuntimeError: shapes")
    ranks = tuple(msgspec.structs.replace(r, log_error=reported) if r.rank == 2 else r for r in capture.ranks)
    cause = diagnose(msgspec.structs.replace(capture, ranks=ranks)).verdict.cause
    assert cause is not None
    assert cause.id == "rank-raised"
    assert any("RuntimeError: shapes" in e.says for e in cause.evidence)
