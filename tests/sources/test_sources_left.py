"""What ranks leave is read, and whatever else lies there instead is not."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model.capture import RankIdentity
from hangwatch.sources.beats.left import ENTRIES_KEPT, parse_left, read_left
from hangwatch.sources.proc.files import CLOCK_TICKS, boot_time_s

FIELDS: dict[str, Any] = {
    "version": 1, "pid": 1 << 22, "start_ticks": 500, "at_ns": 9, "how": "exit", "reported": True, "groups": "[]", "rank": 1,
    "world_size": 2, "error": ["step (train.py:3)", "ValueError: no"], "stack": [("step", "/srv/train.py", 3)], "dumps": {},
}  # fmt: skip


def encode(**changes: Any) -> bytes:
    """A file as the probe writes it."""
    return pickle.dumps({**FIELDS, **changes}, protocol=4)


def entry(number: int) -> dict[str, Any]:
    """One operation of torch's record."""
    return {
        "record_id": number, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": number + 1,
        "profiling_name": "gloo:all_reduce", "time_created_ns": number, "input_sizes": [[4]], "input_dtypes": ["Float"],
        "output_sizes": [[4]], "output_dtypes": ["Float"], "state": "scheduled", "retired": True, "is_p2p": False, "frames": [],
    }  # fmt: skip


def test_the_end_of_a_long_record_is_kept() -> None:
    """The members of the one group are those of the job."""
    dump = pickle.dumps({"version": "2.10", "entries": [entry(number) for number in range(2000)]}, protocol=2)
    left = parse_left(encode(dumps={"gloo": dump}))
    assert left.flight is not None
    assert len(left.flight.operations) == ENTRIES_KEPT
    assert left.flight.operations[-1].seq == 2000
    assert left.flight.operations[-1].group.ranks == (0, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2}, {"how": "killed"}, {"groups": "{"}, {"groups": "[1]"}, {"error": 3}, {"stack": [("step", 3)]},
        {"dumps": {"gloo": {}}}, {"pid": None}, {"at_ns": "late"},
    ],
)  # fmt: skip
def test_what_is_of_another_form_is_refused(changes: dict[str, Any]) -> None:
    """With an error of the one type that its reader expects."""
    with pytest.raises(ValueError, match=r"last word|format|plain"):
        parse_left(encode(**changes))


@pytest.mark.parametrize("dump", [b"", b"no pickle", pickle.dumps(7), pickle.dumps({"entries": 7}), pickle.dumps({})])
def test_a_record_that_cannot_be_read_is_none(dump: bytes) -> None:
    """The exception is there all the same."""
    left = parse_left(encode(dumps={"gloo": dump}))
    assert left.flight is None
    assert left.error[-1] == "ValueError: no"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Nothing but a ``ValueError`` comes of them."""
    with pytest.raises(ValueError):  # noqa: PT011  # whatever it says
        parse_left(data)


def test_what_another_process_of_that_pid_has_left_is_not_read(tmp_path: Path) -> None:
    """Nor is what breaks off."""
    (tmp_path / "ranks").mkdir()
    path = tmp_path / "ranks" / f"{FIELDS['pid']}.left"
    path.write_bytes(encode())
    began_s = boot_time_s() + FIELDS["start_ticks"] / CLOCK_TICKS
    rank = RankIdentity(1, FIELDS["pid"], began_s)
    assert read_left(tmp_path, [rank])[rank.pid].rank == 1
    assert read_left(tmp_path, [RankIdentity(1, FIELDS["pid"], began_s + 60.0)]) == {}
    path.write_bytes(encode()[:-20])
    assert read_left(tmp_path, [rank]) == {}
