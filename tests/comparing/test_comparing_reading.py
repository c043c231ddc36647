"""What each tool printed of real dumps, kept in ``outputs``, is read as its file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus.judging import Answer
from corpus.tools import hangwatch_diagnose, nvrx, torchfrtrace
from corpus.tools.commands import Output, Tool, failure

OUTPUTS = Path(__file__).resolve().parent / "outputs"


def printed(name: str, status: int | None = 0) -> Output:
    """A kept output."""
    streams = [OUTPUTS / f"{name}.{stream}" for stream in ("out", "err")]
    return Output(*(path.read_text() if path.exists() else "" for path in streams), status)


def test_torchfrtrace_names_the_ranks_whose_sizes_differ() -> None:
    """All that follow ``Culprit rank``, and the error's type as a cause."""
    output = printed("torchfrtrace-sizes")
    assert torchfrtrace.read(output) == Answer((1, 2), ("shape-mismatch",))
    assert failure(output) is None


def test_torchfrtrace_names_the_ranks_that_are_missing_first() -> None:
    """The first block counts; that ranks are missing is no cause."""
    assert torchfrtrace.read(printed("torchfrtrace-missing")) == Answer((3,))


def test_torchfrtrace_that_finds_nothing_names_nobody() -> None:
    """No block, no rank."""
    assert torchfrtrace.read(Output("", "tabulate is not installed. Proceeding without it.\n", 0)) == Answer()


def test_nvrx_names_the_ranks_of_its_table() -> None:
    """Those of the last column, whatever the row."""
    assert nvrx.read(printed("nvrx-missing")) == Answer((1, 2))


def test_a_traceback_is_a_failure_with_its_last_line() -> None:
    """A group's name that is no number ends NVRx."""
    output = printed("nvrx-failed", 1)
    assert nvrx.read(output) == Answer()
    assert (failure(output) or "").startswith("ValueError: invalid literal for int()")


def test_hangwatch_names_culprits_and_causes() -> None:
    """As the verdict has them."""
    answer = hangwatch_diagnose.read(printed("hangwatch-lines", 1))
    assert (answer.culprits, answer.causes[0]) == ((1,), "sharded-forward-divergence")


def test_hangwatch_without_usable_data_names_nobody() -> None:
    """Exit status 2: the recorders are empty."""
    assert hangwatch_diagnose.read(printed("hangwatch-nothing", 2)) == Answer()


@pytest.mark.parametrize("tool", [torchfrtrace.TOOL, nvrx.tool(Path()), hangwatch_diagnose.TOOL])
def test_a_tool_that_does_not_end_has_failed(tool: Tool) -> None:
    """It is ended, and says nothing."""
    output = Output("", "", None)
    assert (tool.read(output), failure(output)) == (Answer(), "did not end")
