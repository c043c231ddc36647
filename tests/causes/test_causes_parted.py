"""Where ranks parted ways: what in the program tells one cause from another that leaves nearly the same picture."""

from __future__ import annotations

import pytest

from hangwatch.causes.diagnosis import diagnose
from scenarios import recording
from scenarios.catalogue import load_catalogue


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("clip-out-of-memory", "skipped-collective"),  # a `try` in the loop, by which turns may be left
        ("only-the-user-speaks", "rank-conditional-collective"),  # it took another way through the function
        ("best-state-of-one-camera", "checkpoint-on-some-ranks"),  # the others are in the next round of the loop
        ("trigger-asked-for-by-main", "rank-conditional-collective"),  # `if is_main_process and check_trigger():`
        ("barrier-where-data-is-prepared", "rank-conditional-collective"),  # the others are in Lightning's own barrier
        ("room-without-a-scanner", "sharded-forward-divergence"),  # the condition is one of the model's forward
    ],
)
def test_the_first_cause(name: str, cause: str) -> None:
    """By the structure of the program alone."""
    (entry,) = load_catalogue([name])
    verdict = diagnose(recording.load(entry)).verdict
    assert verdict.cause is not None
    assert verdict.cause.id == cause
