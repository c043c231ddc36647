"""What fuzzing has found stays mended; and every reader stands its own seeds, whole and cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from readers import FIXTURES, READERS, SEEDS

FINDINGS = sorted((FIXTURES / "fuzz").iterdir())


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda path: path.name)
def test_findings(finding: Path) -> None:
    """An input that once got through as an untyped error."""
    READERS[finding.name.partition("-")[0]](finding.read_bytes())


@pytest.mark.parametrize("name", READERS)
def test_seeds(name: str) -> None:
    """The inputs that fuzzing starts from, and what is left of them where they break off."""
    for seed in SEEDS[name]():
        for cut in (len(seed), len(seed) // 2, 1, 0):
            READERS[name](seed[:cut])
