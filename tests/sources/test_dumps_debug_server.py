"""What torch's debug server leaves of a real job that hangs (torch 2.13, ``tests/fixtures/record_debug_server.py``)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.errors import UserError
from hangwatch.model.incident import Verdict
from hangwatch.postmortem.artifacts import read_artifacts
from hangwatch.sources.dumps.debug_server import parse_traceback
from hangwatch.sources.stacks.samples import StackFormatError

CAPTURES = Path(__file__).resolve().parents[1] / "fixtures" / "debug_server"


def look(folder: Path) -> tuple[Verdict, str]:
    """The verdict, and what is said to be missing."""
    capture = read_artifacts(folder, lambda _done, _total: None).capture
    return diagnose(capture).verdict, "\n".join(map(str, capture.gaps))


def copied(fault: str, folder: Path) -> Path:
    """A capture that may be changed."""
    return Path(shutil.copytree(CAPTURES / fault, folder / fault))


@pytest.mark.parametrize(("fault", "line"), [("fifo", "read_shard"), ("gil_held", "hold_gil")])
def test_a_dump_directory(fault: str, line: str) -> None:
    """Of two handlers' dumps that one counts which both ranks have answered: a rank that holds the GIL answers py-spy alone."""
    verdict, missing = look(CAPTURES / fault)
    assert (verdict.kind, verdict.culprit_ranks, verdict.waiting_ranks) == ("stall", (1,), (0,))
    assert verdict.divergence is not None
    assert verdict.divergence.culprit is not None
    assert verdict.divergence.others is not None
    assert verdict.divergence.culprit.function == line
    assert verdict.divergence.others.function == "wait_in_all_reduce"
    assert "debug server" not in missing
    assert "neither dumps nor stacks: tcpstore_" in missing


def test_a_rank_whose_server_does_not_answer_is_not_accused(tmp_path: Path) -> None:
    """It is named as the one of whom nothing is known, with what the server's silence may mean."""
    folder = copied("gil_held", tmp_path)
    next(folder.glob("pyspy_dump_*")).unlink()
    verdict, missing = look(folder)
    assert verdict.summary == "Rank 0 is blocked in all_reduce, and nothing is known of rank 1."
    assert "debug server of rank 1: no stack: TimeoutError (its process may be gone or stopped" in missing


def test_only_the_newest_dump_counts(tmp_path: Path) -> None:
    """By the time in its name, since a copy loses the file's own; who was elsewhere before is named."""
    folder = copied("fifo", tmp_path)
    older = min(folder.glob("stacks_*"))
    older.write_text(older.read_text().replace("line 55 in read_shard", "line 56 in read_shard"))
    verdict, missing = look(folder)
    assert verdict.divergence is not None
    assert verdict.divergence.culprit is not None
    assert verdict.divergence.culprit.line == 55
    assert "rank 1 was elsewhere in the dump before stacks_" in missing


def test_what_one_server_answers(tmp_path: Path) -> None:
    """The traceback that ``/handler/dump_traceback`` of a rank's server returns, kept by hand."""
    parts = max((CAPTURES / "fifo").glob("stacks_*")).read_text().split("=== Rank ")[1:]
    for part in parts:
        (tmp_path / f"rank_{part[0]}.txt").write_text(part.partition("\n")[2])
    verdict, _ = look(tmp_path)
    assert (verdict.culprit_ranks, verdict.waiting_ranks) == ((1,), (0,))


@pytest.mark.parametrize("text", ["=== Rank 0: http://n:1/handler/wait_counter_values? ===\n{}\n", "PARTIAL DATA: 0/2"])
def test_other_handlers_hold_no_stacks(tmp_path: Path, text: str) -> None:
    """They begin alike."""
    (tmp_path / "wait_counters_20261130_043536.txt").write_text(text)
    with pytest.raises(UserError, match="neither dumps nor stacks"):
        look(tmp_path)


def test_of_more_than_a_hundred_threads_none_is_known_to_be_the_main_one() -> None:
    """``faulthandler`` stops there, and the main thread would be the last."""
    thread = 'Thread 0x00007f{:010x} [worker] (most recent call first):\n  File "/srv/a.py", line 3 in run\n\n'
    text = "".join(thread.format(number) for number in range(100))
    (whole,), (cut,) = (parse_traceback(t.encode(), at_ns=0) for t in (text, text + "...\n"))
    assert [whole.sample.main.name if whole.sample.main else None, cut.sample.main] == ["worker", None]
    with pytest.raises(StackFormatError):
        parse_traceback(b"Current thread 0x00007f0000000000 (most recent call first):\n  <no Python frame>\n", at_ns=0)
