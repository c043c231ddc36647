"""Where nothing decides between a turn left out, a condition and data that ended, all three are named."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.incident import Cause
from recorded import load, without_source
from scenarios import recording
from scenarios.catalogue import load_catalogue


def _causes(capture: Capture) -> list[Cause]:
    """What is said of a recorded hang, the surest first."""
    verdict = diagnose(capture).verdict
    return [cause for cause in (verdict.cause, *verdict.alternatives) if cause is not None]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("uneven_inputs", "uneven-inputs"),
        ("branch_on_data", "rank-conditional-collective"),
        ("skipped_step", "skipped-collective"),
    ],
)
def test_the_others_stand_beside_the_first(name: str, first: str) -> None:
    """Each with what would have happened, and less sure than the first."""
    found = _causes(load(name))
    assert found[0].id == first
    told = {cause.id: cause for cause in found[1:]}
    assert {"uneven-inputs", "rank-conditional-collective", "skipped-collective"} - {first} <= set(told)
    assert all(cause.confidence < found[0].confidence and cause.explanation for cause in told.values())


@pytest.mark.parametrize("name", ["rank_conditional", "group_order", "p2p", "killed", "tuple_labels"])
def test_what_is_decided_has_none(name: str) -> None:
    """A condition that speaks of the rank, a cycle of groups, a rank that died: nothing else looks like it."""
    assert not any(cause.explanation.startswith("It may be") for cause in _causes(load(name)))


def test_data_that_ended_needs_a_loop() -> None:
    """Without the source no loop is known, and nothing is said of what one would do."""
    capture = load("branch_on_data")
    blind = [replace(r, stacks=tuple(map(without_source, r.stacks)), flight=None) for r in capture.ranks]
    assert "uneven-inputs" in [cause.id for cause in _causes(capture)]
    assert "uneven-inputs" not in [cause.id for cause in _causes(replace(capture, ranks=tuple(blind)))]


def test_a_stage_that_has_gone_on_may_have_had_less_to_do() -> None:
    """A rank that is in a collective while the others send and receive: they do not pair, and why it left is open."""
    (entry,) = load_catalogue(["last-stage-has-fewer-targets"])
    verdict = recording.verdict_of(entry)
    assert verdict.cause is not None
    assert verdict.cause.id == "p2p-mismatch"
    assert {"uneven-inputs", "rank-conditional-collective"} <= {cause.id for cause in verdict.alternatives}
