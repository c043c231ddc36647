"""What the diagnosis says of real hangs, recorded by ``tests/fixtures/record_captures.py``."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from recorded import NAMES, load

from hangwatch.causes.diagnosis import diagnose

#: Name of the capture -> kind, culprits, and the cause that comes first.
EXPECTED = {
    "tuple_labels": ("deadlock", (0, 1), "tuple-labels-gather"),
    "tuple_labels_silent": ("deadlock", (0, 1), "tuple-labels-gather"),
    "tuple_labels_without_probe": (None, (0, 1), "tuple-labels-gather"),
    "tuple_labels_zero": ("deadlock", (0, 1), "tuple-labels-gather"),
    "rank_conditional": ("deadlock", (0,), "rank-conditional-collective"),
    "rank_conditional_without_probe": (None, (0,), "rank-conditional-collective"),
    "checkpoint_on_rank0": ("deadlock", (0,), "checkpoint-on-some-ranks"),
    "save_state": ("deadlock", (0,), "checkpoint-on-some-ranks"),
    "uneven_inputs": ("deadlock", (2,), "uneven-inputs"),
    "uneven_epoch": ("deadlock", (1,), "uneven-inputs"),
    "uneven_while": ("deadlock", (0,), "uneven-inputs"),
    "skipped_step": ("deadlock", (1,), "skipped-collective"),
    "jumped_turn": ("deadlock", (2,), "skipped-collective"),
    "swallowed_error": ("deadlock", (2,), "skipped-collective"),
    "two_orders": ("deadlock", (0, 1), "group-order-inversion"),
    "main_process_first": ("deadlock", (0,), "rank-conditional-collective"),
    "branch_on_data": ("deadlock", (2,), "rank-conditional-collective"),
    "gather_on_main": ("deadlock", (0,), "rank-conditional-collective"),
    "guarded_helper": ("deadlock", (0, 1), "rank-conditional-collective"),
    "group_order": ("deadlock", (0, 1), "group-order-inversion"),
    "group_ring": ("deadlock", (0, 1, 2), "group-order-inversion"),
    "group_creation": ("deadlock", (2,), "group-creation-mismatch"),
    "p2p": ("deadlock", (0, 1), "p2p-mismatch"),
    "wrong_peer": ("deadlock", (1, 2), "p2p-mismatch"),
    "sharded_branch": (None, (0,), "sharded-forward-divergence"),
    "generate_lengths": (None, (0, 1), "generate-length-divergence"),
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
    verdict = diagnose(load(name)).verdict
    assert verdict.culprit_ranks == culprits
    assert kind is None or verdict.kind == kind
    assert verdict.cause is not None
    assert cause is None or verdict.cause.id == cause


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_cause_rests_on_evidence(name: str) -> None:
    """No hypothesis is a bare assertion: each has observations with text, an explanation, and something to do."""
    verdict = diagnose(load(name)).verdict
    for cause in (verdict.cause, *verdict.alternatives):
        assert cause is not None
        assert 0.0 < cause.confidence < 1.0
        assert cause.explanation.endswith(".")
        assert cause.remedy
        assert cause.evidence
        assert all(e.source and e.says for e in cause.evidence)


def test_same_evidence_is_not_told_twice() -> None:
    """An observation is listed once, however many helpers came upon it."""
    for name in EXPECTED:
        cause = diagnose(load(name)).verdict.cause
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
    told = ("Traceback (most recent call last):", '  File "train.py", line 15, in <module>', "RuntimeError: shapes")
    ranks = tuple(msgspec.structs.replace(r, log_error=told) if r.rank == 2 else r for r in capture.ranks)
    cause = diagnose(msgspec.structs.replace(capture, ranks=ranks)).verdict.cause
    assert cause is not None
    assert cause.id == "rank-raised"
    assert any("RuntimeError: shapes" in e.says for e in cause.evidence)
