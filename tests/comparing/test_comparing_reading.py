"""What each tool printed of real dumps, kept in ``outputs``, is read as its file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from comparing import hangwatch_diagnose, nvrx, torchfrtrace
from comparing.reading import Output, Reading

OUTPUTS = Path(__file__).resolve().parent / "outputs"


def printed(name: str, status: int | None = 0) -> Output:
    """A kept output."""
    streams = [OUTPUTS / f"{name}.{stream}" for stream in ("out", "err")]
    return Output(*(path.read_text() if path.exists() else "" for path in streams), status)


def test_torchfrtrace_names_the_ranks_whose_sizes_differ() -> None:
    """All that follow ``Culprit rank``, the error's type as a cause, and the one stack that it prints."""
    reading = torchfrtrace.read(printed("torchfrtrace-sizes"))
    assert reading.culprits == (1, 2)
    assert reading.cause == "shape-mismatch"
    assert ("/srv/train/beach_litter.py", 26) in reading.lines
    assert reading.error is None


def test_torchfrtrace_names_the_ranks_that_are_missing_first() -> None:
    """The first block counts for ranks, all blocks count for lines; that ranks are missing is no cause."""
    reading = torchfrtrace.read(printed("torchfrtrace-missing"))
    assert (reading.culprits, reading.cause) == ((3,), None)
    assert {line for file, line in reading.lines if file == "/srv/train/cell_atlas.py"} >= {68, 77}


def test_torchfrtrace_that_finds_nothing_names_nobody() -> None:
    """No block, no rank."""
    assert torchfrtrace.read(Output("", "tabulate is not installed. Proceeding without it.\n", 0)) == Reading()


def test_nvrx_names_the_ranks_of_its_table() -> None:
    """Those of the last column, whatever the row."""
    assert nvrx.read(printed("nvrx-missing")) == Reading((1, 2))


def test_a_traceback_is_a_failure_with_its_last_line() -> None:
    """A group's name that is no number ends NVRx."""
    reading = nvrx.read(printed("nvrx-failed", 1))
    assert reading.culprits == ()
    assert reading.error is not None
    assert reading.error.startswith("ValueError: invalid literal for int()")


def test_hangwatch_names_culprits_cause_and_both_lines() -> None:
    """As the verdict has them."""
    reading = hangwatch_diagnose.read(printed("hangwatch-lines", 1))
    assert (reading.culprits, reading.cause) == ((1,), "sharded-forward-divergence")
    assert len({line for _, line in reading.lines}) == 2


def test_hangwatch_without_usable_data_names_nobody() -> None:
    """Exit status 2: the recorders are empty."""
    assert hangwatch_diagnose.read(printed("hangwatch-nothing", 2)) == Reading()


@pytest.mark.parametrize("tool", [torchfrtrace, nvrx, hangwatch_diagnose], ids=lambda tool: tool.__name__)
def test_a_tool_that_does_not_end_has_failed(tool: object) -> None:
    """It is ended, and counted."""
    assert tool.read(Output("", "", None)).error == "did not end"  # type: ignore[attr-defined]
