"""The causes of an incident, from what the rules found: which alternatives stand beside the first, and how sure each is. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.causes.calibration import confidence
from hangwatch.causes.signature import Match
from hangwatch.model.incident import Cause

#: How many alternatives stand beside the first cause.
_ALTERNATIVES = 3


def shown(found: Sequence[Match]) -> tuple[Match, ...]:
    """The first cause and the alternatives that stand beside it, of all that fits, the surest first.

    That nothing else fits is no alternative to a cause.
    """
    first, *rest = found
    return (first, *[match for match in rest if match.signature.cause != "unknown"][:_ALTERNATIVES])


def to_cause(match: Match, *, first: bool) -> Cause:
    """The form a match takes in the incident document; what is the same each time comes from the cause's page."""
    known = match.signature.knowledge
    return Cause(
        id=known.id,
        title=known.title,
        confidence=round(confidence(match.signature, first=first), 2),
        explanation=match.says,
        evidence=tuple(dict.fromkeys(match.evidence)),
        remedy=known.remedy,
        references=known.references,
    )


def to_causes(found: Sequence[Match]) -> tuple[Cause, tuple[Cause, ...]]:
    """The first cause and its alternatives."""
    best, *others = shown(found)
    return to_cause(best, first=True), tuple(to_cause(match, first=False) for match in others)
