"""Fixture of the probe's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from probe_runs import Run


@pytest.fixture
def run(real: None, tmp_path: Path) -> Iterator[Run]:
    """A run directory with a short path; it and everything started in it is gone afterwards."""
    found = Run(tmp_path)
    yield found
    found.end()
