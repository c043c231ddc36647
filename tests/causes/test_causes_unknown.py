"""Where no cause fits, the incident still says what is known, what spoke against the next causes, and what would tell more."""

from __future__ import annotations

import gzip

import msgspec
import pytest

from hangwatch.causes.rules.job.unknown import unknown
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture, Gap
from scenarios.recording import CAPTURES


def _capture(name: str) -> Capture:
    return msgspec.json.decode(gzip.decompress((CAPTURES / f"{name}.json.gz").read_bytes()), type=Capture)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("polling-for-a-file", ("sleeps in", "time.sleep(5.0), in the loop `while not path.exists():`")),
        (
            "poll-that-is-counted-often",
            ("in the loop `for attempt in range(100_000):`", "under `if dist.get_rank() == 1:`"),
        ),
    ],
)
def test_what_is_known_is_one_sentence(name: str, said: tuple[str, ...]) -> None:
    """The call, its line and function, the loop it is in and the condition it came by; and a command that would tell more."""
    match = unknown(diagnose(_capture(name)).case)
    assert all(part in match.says for part in said)
    assert match.says.endswith("`hangwatch dump --with-values` shows what its variables hold.")


def test_causes_that_came_near_are_named_with_what_was_missing() -> None:
    """One line each, on the rank; none for a cause that may still be: it has no child process, so no child holds it up."""
    match = unknown(diagnose(_capture("polling-for-a-file")).case)
    near = [e.says for e in match.evidence if e.says.startswith("not ")]
    assert [line.partition(":")[0] for line in near] == [
        "not blocked-io",
        "not busy-loop",
        "not thread-stall",
        "not child-stall",
    ]
    assert "clock_nanosleep" in near[0]


def test_the_repair_of_a_gap_is_what_settles_it() -> None:
    """Where something could not be read and there is a repair, that comes before any other command."""
    capture = _capture("polling-for-a-file")
    gap = Gap("flight recorder", "could not be read", 2, "set TORCH_FR_BUFFER_SIZE")
    match = unknown(diagnose(msgspec.structs.replace(capture, gaps=(gap,))).case)
    assert "set TORCH_FR_BUFFER_SIZE" in match.says
