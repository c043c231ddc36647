"""The matrix of versions: what is said of a hang, what counts as good, and that the page has the table of the file."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from device.build import LIBRARIES, Library
from hangwatch.demos import Scenario, find_scenario
from hangwatch.model.incident import Cause, Kind, Verdict
from matrix.cells import (
    CELLS,
    HANGS,
    NO_CAUSE,
    NOT_PROVEN,
    RIGHT,
    Cell,
    Result,
    Results,
    describe,
    parse_cells,
    render,
    with_table,
)
from matrix.environment import needed_without_gpu, stub_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
OLD, NEW = Cell("3.10", "2.9.1"), Cell("3.13", "2.13.0")


def demo(name: str) -> Scenario:
    """A demo that is there."""
    found = find_scenario(name)
    assert found is not None
    return found


def verdict(kind: Kind, cause: str | None, culprits: tuple[int, ...]) -> Verdict:
    """A verdict with what the matrix reads of it."""
    said = Cause(cause, "", 0.5, "") if cause else None
    return Verdict(kind, kind == "deadlock", "critical", "", culprit_ranks=culprits, cause=said)


def test_pairs_are_read_or_refused() -> None:
    """PYTHON:TORCH, a local version too; nothing means all."""
    assert parse_cells(["3.10:2.4.1", "3.11:2.13.0+cpu"]) == (Cell("3.10", "2.4.1"), Cell("3.11", "2.13.0+cpu"))
    assert parse_cells([]) == CELLS
    with pytest.raises(ValueError, match=r"write PYTHON:TORCH"):
        parse_cells(["3.10/2.4"])


def test_each_version_that_is_promised_is_run() -> None:
    """Python 3.10 to 3.14, PyTorch 2.4 to 2.14, and the corners of which there are wheels."""
    assert {cell.python for cell in CELLS} == {"3.10", "3.11", "3.12", "3.13", "3.14"}
    assert {"2.4", "2.6", "2.9", *(f"2.{minor}" for minor in range(10, 15))} == {
        cell.torch.rpartition(".")[0] for cell in CELLS
    }
    assert {("3.10", "2.4.1"), ("3.10", "2.13.0"), ("3.14", "2.14.1")} <= {(cell.python, cell.torch) for cell in CELLS}
    assert all("torch" in demo(name).needs and len(demo(name).needs) == 1 for name in HANGS)


def test_a_verdict_is_right_unproven_empty_or_wrong() -> None:
    """A wrong culprit is never taken for less than wrong."""
    one = demo("rank-conditional")
    assert describe(one, verdict("deadlock", one.cause, (0,))) == RIGHT
    assert describe(one, verdict("stall", one.cause, (0,))) == NOT_PROVEN
    assert describe(one, verdict("stall", "unknown", ())) == NO_CAUSE
    assert describe(one, verdict("deadlock", one.cause, (1,))) == f"wrong: deadlock, {one.cause}, 1"
    assert describe(one, verdict("stall", "unknown", (1,))) == "wrong: stall, unknown, 1"
    assert describe(one, verdict("deadlock", None, ())) == "wrong: deadlock, None, none"
    assert describe(one, None) == "wrong: no incident"


def test_less_is_expected_only_where_the_recorder_has_less() -> None:
    """Before PyTorch 2.10 a hang on Gloo may go without proof; a wrong one is good nowhere, nor is one that was not run."""
    right, less = dict.fromkeys(HANGS, RIGHT), dict.fromkeys(HANGS, NOT_PROVEN)
    assert Result(NEW, hangs=right).good
    assert Result(OLD, hangs=less).good
    assert not Result(NEW, hangs=less).good
    assert not Result(OLD, hangs={**less, HANGS[0]: "wrong: no incident"}).good
    assert not Result(OLD, hangs={HANGS[0]: RIGHT}).good
    assert not Result(OLD, failed="not installed: no wheel").good


def test_new_rows_replace_older_ones_of_their_cell() -> None:
    """In the order of PyTorch's versions, then Python's, and not that of their letters."""
    before = Results("so", (Result(NEW, failed="x"), Result(Cell("3.9", "2.13.0"))))
    after = before.merged([Result(NEW, torch="2.13.0+cpu"), Result(OLD)])
    assert [(row.cell.python, row.torch, row.failed) for row in after.cells] == [
        ("3.10", "", ""), ("3.9", "", ""), ("3.13", "2.13.0+cpu", ""),
    ]  # fmt: skip


def test_the_page_shows_the_results() -> None:
    """The table in docs/status.md is that of docs/versions.json, of the hangs that are run now."""
    results = msgspec.json.decode((DOCS / "versions.json").read_bytes(), type=Results)
    page = (DOCS / "status.md").read_text()
    assert with_table(page, results.cells) == page
    assert render(results.cells) in page
    assert all(row.good for row in results.cells)


def test_the_readme_says_what_does_not_work() -> None:
    """Its row of a version is as the results of that version are: right from PyTorch 2.10 on, without a proof before."""
    results = msgspec.json.decode((DOCS / "versions.json").read_bytes(), type=Results)
    readme = (DOCS.parent / "README.md").read_text()
    rows = re.findall(r"^\| (2\.\d+) to (2\.\d+) \| (3\.\d+) to (3\.\d+)[^|]* \| ([^|]+) \|$", readme, re.MULTILINE)
    assert len(rows) == 2
    of_row: dict[str, set[str]] = {lacks: set() for *_, lacks in rows}
    for cell in results.cells:
        (lacks,) = [
            lacks
            for first, last, oldest, newest, lacks in rows
            if _version(first) <= _version(cell.cell.torch)[:2] <= _version(last)
            and _version(oldest) <= _version(cell.cell.python) <= _version(newest)
        ]
        of_row[lacks] |= set(cell.hangs.values())
    assert [said for lacks, said in of_row.items() if lacks == "nothing known"] == [{RIGHT}]
    assert [said for lacks, said in of_row.items() if lacks.startswith("proofs on Gloo")] == [
        {RIGHT, NOT_PROVEN, NO_CAUSE}
    ]


def _version(text: str) -> list[int]:
    return [int(number) for number in text.split("+", maxsplit=1)[0].split(".")]


def test_what_torch_needs_without_a_gpu() -> None:
    """NVIDIA's libraries and Triton are left out, and so are extras; conditions are pip's to read."""
    requires = [
        "filelock", "sympy>=1.13.3", 'setuptools; python_version >= "3.12"', 'nvidia-nccl-cu12==2.20.5',
        "triton==3.0.0", "cuda-bindings<14", 'cuda-toolkit[cublas]==13.0', 'opt-einsum>=3.3; extra == "opt-einsum"',
    ]  # fmt: skip
    assert needed_without_gpu(requires) == requires[:3]


def test_a_stub_has_the_soname_that_is_asked_for_and_no_device() -> None:
    """``libcuda`` is not ``libcudart``, nor is ``libcusparse`` ``libcusparseLt``; the simulated device is not in it."""
    asked = {"libcudart.so.12", "libcuda.so.1", "libcusparse.so.12", "libcusparseLt-f80c68d1.so.0"}
    by_stem = {library.soname.partition(".so")[0]: library for library in LIBRARIES}
    runtime = stub_of(by_stem["libcudart"], asked)
    assert (runtime.soname, runtime.status, runtime.sources, runtime.links) == ("libcudart.so.12", 100, (), ())
    assert stub_of(by_stem["libcusparse"], asked).soname == "libcusparse.so.12"
    assert stub_of(by_stem["libcuda"], asked).soname == "libcuda.so.1"
    assert stub_of(Library("libnvToolsExt.so.1", ("nvtx",)), asked).soname == "libnvToolsExt.so.1"
