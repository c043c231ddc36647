"""Every promise of docs/security.md names the test that attacks it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", (Path(__file__).parent / "README.md").read_text())


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_the_attack_exists(file: str, name: str) -> None:
    """The table is of use only as long as its tests are there."""
    assert f"def {name}(" in (TESTS / file).read_text()
