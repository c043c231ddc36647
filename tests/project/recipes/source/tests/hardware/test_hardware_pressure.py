"""Pressure stall information, as Linux 6.12 wrote it, damaged, and of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.hardware.sources.pressure import NodePressure, parse_pressure
from hangwatch.model.capture import Gap
from hangwatch.model.devices import NodeFacts, Pressure

#: Read on a machine with two cores and eight builds.
BUSY = b"""some avg10=2.54 avg60=22.06 avg300=26.87 total=173154518
full avg10=0.00 avg60=0.14 avg300=0.14 total=4248863
"""


def test_the_share_of_the_last_minute_is_read() -> None:
    """Percentages become shares."""
    assert parse_pressure("io", BUSY) == Pressure("io", 0.2206, 0.0014)
    assert parse_pressure("cpu", BUSY.splitlines()[0]) == Pressure("cpu", 0.2206, None)


@pytest.mark.parametrize(
    "content", [b"", b"full avg60=1.00", b"some avg10=1.00", b"some avg60=", b"some avg60=nan", b"\xff\x00" * 9]
)
def test_another_form_tells_nothing(content: bytes) -> None:
    """A kernel that writes something else is no error."""
    assert parse_pressure("cpu", content) is None


@given(st.binary(max_size=300), st.integers(0, len(BUSY)))
def test_a_damaged_file_raises_nothing(noise: bytes, end: int) -> None:
    """Cut anywhere, with anything behind: a share is a share."""
    found = parse_pressure("io", BUSY[:end] + noise)
    assert found is None or 0 <= found.some <= 1


def test_a_kernel_that_measures_none_is_known(tmp_path: Path) -> None:
    """It is an absence, and no gap."""
    found = NodePressure(tmp_path / "pressure").read([])
    assert isinstance(found, NodeFacts)
    assert [one.source for one in found.absent] == ["pressure"]


def test_a_folder_in_place_of_a_file_is_a_gap(tmp_path: Path) -> None:
    """What cannot be read is said."""
    (tmp_path / "cpu").mkdir()
    found = NodePressure(tmp_path).read([])
    assert isinstance(found, Gap)
    assert "Is a directory" in found.reason


def test_this_machine_is_read() -> None:
    """Its kernel measures pressure, or has none to measure."""
    found = NodePressure().read([])
    assert isinstance(found, NodeFacts)
    assert found.absent or {one.resource for one in found.pressures} == {"cpu", "io", "memory"}
