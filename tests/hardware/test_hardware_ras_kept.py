"""Reports of NCCL's RAS that lie beside dumps: the H200's (``test_hardware_gpu``), as ``ncclras -v -f json`` prints them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import Capture
from hangwatch.model.errors import UserError
from hangwatch.postmortem.artifacts import read_artifacts

FOLDER = Path(__file__).parents[1] / "fixtures" / "gpu"


def look(folder: Path, report: bytes, *ranks: int) -> Capture:
    """What the dumps of these ranks and a report tell."""
    (folder / "ras.json").write_bytes(report)
    for rank in ranks:
        shutil.copy2(FOLDER / f"dump_{rank}", folder / f"nccl_trace_rank_{rank}")
    return read_artifacts(folder, lambda _done, _total: None).capture


def kept(name: str) -> bytes:
    """A report without the three lines by which the server answers commands."""
    return (FOLDER / name).read_bytes().split(b"\n", 3)[3]


def test_of_a_rank_without_a_dump_the_report_says_that_it_does_not_answer(tmp_path: Path) -> None:
    """Rank 1 was killed. No record shows that, NCCL knows it."""
    verdict = diagnose(look(tmp_path, kept("ras_killed.json"), 0)).verdict
    assert verdict.summary == "Rank 0 is blocked in all_reduce of default_pg, and nothing is known of rank 1."
    assert verdict.cause is not None
    assert verdict.cause.explanation.startswith("Rank 1 has left no record. NCCL's RAS says: rank 1 of communicator 0x")
    assert "did not answer NCCL" in verdict.cause.explanation


def test_with_all_dumps_it_is_evidence(tmp_path: Path) -> None:
    """Of what each rank has launched."""
    verdict = diagnose(look(tmp_path, kept("ras.json"), 0, 1)).verdict
    assert verdict.culprit_ranks == (1,)
    assert verdict.cause is not None
    said = [(e.rank, e.says.partition(": ")[2]) for e in verdict.cause.evidence if e.source == "nccl ras"]
    assert said == [(1, "launched 30 AllReduce, 1 other 31")]


def test_one_that_is_cut_off_is_set_aside(tmp_path: Path) -> None:
    """The dumps are diagnosed without it."""
    capture = look(tmp_path, kept("ras.json")[:400], 0, 1)
    assert capture.nodes == ()
    assert "ras.json: the report cannot be read" in str(capture.gaps)


def test_alone_it_is_not_enough(tmp_path: Path) -> None:
    """It has no operations and no stacks."""
    with pytest.raises(UserError, match=r"ras\.json: a report of RAS says nothing without dumps"):
        look(tmp_path, kept("ras.json"))
