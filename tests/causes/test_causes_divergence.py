"""Where the ranks diverged is found once a case, however many rules ask for it."""

from __future__ import annotations

import pytest

from hangwatch.analysis import case as cases
from hangwatch.analysis.divergence.find import PathDivergence, find_divergence
from hangwatch.analysis.situation import Situation
from hangwatch.diagnosis.verdict import diagnose
from recorded import load


@pytest.mark.parametrize("name", ["rank_conditional", "uneven_inputs", "tuple_labels"])
def test_the_divergence_is_found_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rules together cause one comparison of call paths: it is what a diagnosis spends most of its time on."""
    asked: list[Situation] = []

    def counted(case: Situation) -> PathDivergence | None:
        asked.append(case)
        return find_divergence(case)

    monkeypatch.setattr(cases, "find_divergence", counted)
    assert diagnose(load(name)).verdict.cause is not None
    assert len(asked) == 1
