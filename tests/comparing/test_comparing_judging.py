"""A comparison must be fair to all: what counts as named, which lines the dumps hold, and that its page is of its results."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from comparing.__main__ import PAGE, RESULTS
from comparing.judging import call_sites, judge
from comparing.reading import Reading
from comparing.tables import Row, render
from hangwatch.postmortem.artifacts import read_artifacts
from hangwatch.postmortem.verdict import diagnose_artifacts
from scenarios.catalogue import Entry, load_catalogue
from scenarios.dumping import load_kept, path, unpack

NAME = "nccl-text-only-fsdp1"


@pytest.fixture
def hang() -> Entry:
    """Three ranks, of which rank 1 leaves out a part of the model."""
    (entry,) = load_catalogue([NAME])
    return entry


@pytest.fixture
def folder(hang: Entry, tmp_path: Path) -> Path:
    """Its dumps."""
    unpack(hang, tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("said", "named"), [((1,), "exact"), ((0, 1), "among"), ((0, 2), "wrong"), ((), "nobody")], ids=str
)
def test_who_is_named(hang: Entry, folder: Path, said: tuple[int, ...], named: str) -> None:
    """Against the truth, which is rank 1."""
    assert judge(hang, "tool", Reading(said), folder, 0, 1.0).named == named


def test_a_failure_that_names_nobody_is_a_failure(hang: Entry, folder: Path) -> None:
    """What it printed before it failed counts."""
    assert judge(hang, "tool", Reading(error="KeyError"), folder, 1, 1.0).named == "failed"
    assert judge(hang, "tool", Reading((1,), error="KeyError"), folder, 1, 1.0).named == "exact"


def test_both_lines_have_to_be_shown(hang: Entry, folder: Path) -> None:
    """One of each side, as the dumps have them; more do no harm."""
    sides = call_sites(hang, folder)
    assert sides is not None
    lines = tuple(line for side in sides for line in side)
    assert judge(hang, "tool", Reading((1,), None, (*lines, ("other.py", 1))), folder, 0, 1.0).lines is True
    assert judge(hang, "tool", Reading((1,), None, lines[:1]), folder, 0, 1.0).lines is False


def test_the_page_shows_the_results() -> None:
    """Every hang that was run for its dumps has a row, and the tables are those of the results."""
    rows = msgspec.json.decode(RESULTS.read_bytes(), type=list[Row])
    kept = load_kept()
    assert {row.name for row in rows} == set(kept)
    assert render(rows) in PAGE.read_text()
    assert all(
        path(entry).exists() for entry in load_catalogue() if (one := kept.get(entry.scenario.name)) and one.dumps
    )


#: Of these the operation in which one side waits was called by a backward pass: its recorded frames have no line of the program.
WITHOUT_LINE = {"nccl-plate-left-out"}


def test_diagnose_shows_both_call_sites_wherever_the_dumps_have_them(tmp_path: Path) -> None:
    """Of every kept hang whose culprits are found, where torch recorded a line of the program on both sides."""
    checked = 0
    for entry in load_catalogue(["nccl/*"]):
        if not path(entry).exists():
            continue
        folder = tmp_path / entry.scenario.name
        unpack(entry, folder)
        if call_sites(entry, folder) is None:
            continue
        verdict = diagnose_artifacts(read_artifacts(folder, lambda _done, _total: None)).verdict
        truth = entry.scenario.truth
        assert truth is not None
        if set(verdict.culprit_ranks) != set(truth.culprits):
            continue
        divergence = verdict.divergence
        assert divergence is not None, entry.scenario.name
        for side in (divergence.culprit, divergence.others):
            if side is None and entry.scenario.name in WITHOUT_LINE:
                continue
            assert side is not None, entry.scenario.name
            assert side.file.endswith(f"/{entry.program.name}"), entry.scenario.name
        checked += 1
    assert checked > 10


def test_the_comparison_of_the_documentation_has_these_figures() -> None:
    """The table in docs/comparison.md counts the rows of nccl_tools.json, and each tool of its first table has a source."""
    page = (PAGE.parents[1] / "docs" / "comparison.md").read_text()
    rows = [row for row in msgspec.json.decode(RESULTS.read_bytes(), type=list[Row]) if row.dumps]
    tools = [[row.tools[place] for row in rows] for place in range(3)]
    both = sum(one.lines is not None for one in tools[0])
    expected = {
        "exactly the culprits named": [sum(one.named == "exact" for one in tool) for tool in tools],
        "one of them, or others too": [sum(one.named == "among" for one in tool) for tool in tools],
        "only other ranks": [sum(one.named == "wrong" for one in tool) for tool in tools],
        "nobody, or the tool failed": [sum(one.named in {"nobody", "failed"} for one in tool) for tool in tools],
        "cause named": [sum(one.cause for one in tool) for tool in tools],
        f"line shown on both sides, of {both} whose dumps hold both": [
            sum(one.lines is True for one in tool) for tool in tools
        ],
    }
    table = page[page.index(f"| of {len(rows)} hangs |") : page.index("hangwatch has been developed on these programs")]
    found = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \|$", table, re.MULTILINE)
    assert {what: list(map(int, figures)) for what, *figures in found} == expected
    assert f"dumps of {len(rows)} hangs on NCCL" in page
    others = page[page.index("|---|---|---|---|") : page.index("| **hangwatch**")].splitlines()[1:]
    assert len(others) > 10
    for line in others:
        (source,) = re.findall(r"^\| (?:.*?\[[^\]]+\]\[([a-z-]+)\])", line) or [""]
        assert f"\n[{source}]: https://" in page, line
