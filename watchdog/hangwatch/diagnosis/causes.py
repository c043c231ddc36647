"""The causes of an incident, from what the rules found: which alternatives stand beside the first, and how sure each is. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.causes.calibration import confidence, is_measured
from hangwatch.causes.signature import Match
from hangwatch.model.incident import Cause

#: How many alternatives stand beside the first cause.
_ALTERNATIVES = 3
#: Nothing is stated as impossible, or as beyond doubt: hundreds of captures bear no more than this.
_RAREST = 0.01


def shown(found: Sequence[Match]) -> tuple[Match, ...]:
    """The first cause and the alternatives that stand beside it, of all that fits, the surest first.

    That nothing else fits is no alternative to a cause.
    """
    first, *rest = found
    return (first, *[match for match in rest if match.signature.cause != "unknown"][:_ALTERNATIVES])


def to_cause(match: Match, *, first: bool, whole: bool) -> Cause:
    """The form a match takes in the incident document; what is the same each time comes from the cause's page."""
    known = match.signature.knowledge
    rate = round(confidence(match.signature, first=first, whole=whole), 2)
    return Cause(
        id=known.id,
        title=known.title,
        confidence=min(max(rate, _RAREST), 1 - _RAREST),
        explanation=match.says,
        evidence=tuple(dict.fromkeys(match.evidence)),
        remedy=known.remedy,
        references=known.references,
        measured=is_measured(known.id),
    )


def to_causes(found: Sequence[Match], *, whole: bool = True) -> tuple[Cause, tuple[Cause, ...]]:
    """The first cause and its alternatives. ``whole``: whether both sides were seen whole (``causes.calibration``)."""
    best, *others = shown(found)
    alternatives = tuple(to_cause(match, first=False, whole=whole) for match in others)
    return to_cause(best, first=True, whole=whole), alternatives
