"""What a rule returns: a cause held against one case, with what was seen and how sure that makes us."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hangwatch.analysis.case import Case
from hangwatch.analysis.training.case import TrainingCase
from hangwatch.causes.knowledge import Knowledge
from hangwatch.model.incident import Cause, Evidence


@dataclass(frozen=True)
class Hypothesis:
    """A cause held against one case. ``confidence`` is 0..1: 0.9 and above only where the structure leaves no doubt."""

    knowledge: Knowledge
    confidence: float
    explanation: str
    evidence: tuple[Evidence, ...]

    def to_cause(self) -> Cause:
        """The form it takes in the incident document."""
        known = self.knowledge
        return Cause(
            id=known.id,
            title=known.title,
            confidence=round(self.confidence, 2),
            explanation=self.explanation,
            evidence=tuple(dict.fromkeys(self.evidence)),
            remedy=known.remedy,
            references=known.references,
        )


Rule = Callable[[Case], Hypothesis | None]
TrainingRule = Callable[[TrainingCase], Hypothesis | None]
