"""The causes of an incident, from what the rules found: the alternatives beside the first, and how sure each is. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.causes.calibration import confidence, is_measured
from hangwatch.causes.knowledge import read_page
from hangwatch.causes.match import Match
from hangwatch.model.incident import Cause

#: How many alternatives are shown beside the first cause.
_ALTERNATIVES = 3
#: No cause is stated as impossible or as beyond doubt: the number of captures bears no more than this.
_RAREST = 0.01


def shown(found: Sequence[Match]) -> tuple[Match, ...]:
    """Return the first cause and the alternatives to show beside it. ``found``: all that fits, the surest first.

    ``unknown`` is no alternative to a cause.
    """
    first, *rest = found
    return (first, *[match for match in rest if match.cause != "unknown"][:_ALTERNATIVES])


def to_cause(match: Match, *, first: bool, whole: bool, hangs: bool) -> Cause:
    """Return the form that a match takes in the incident document; what is always the same comes from the cause's page."""
    page = read_page(match.cause)
    rate = round(confidence(match, first=first, whole=whole), 2)
    return Cause(
        id=match.cause,
        title=page.title_of(match.how),
        confidence=min(max(rate, _RAREST), 1 - _RAREST),
        explanation=match.says,
        evidence=tuple(dict.fromkeys(match.evidence)),
        remedy=page.remedy_of(match.how),
        references=page.references,
        measured=hangs and is_measured(match.cause),
        how=match.how,
    )


def to_causes(found: Sequence[Match], *, whole: bool = True, hangs: bool = True) -> tuple[Cause, tuple[Cause, ...]]:
    """Return the first cause and its alternatives, ordered by how often they were right.

    ``whole``: both sides were seen whole (``causes.calibration``). ``hangs``: the job does; how often a cause is right
    was counted over hangs.
    """
    best, *others = shown(found)
    alternatives = [to_cause(match, first=False, whole=whole, hangs=hangs) for match in others]
    return to_cause(best, first=True, whole=whole, hangs=hangs), tuple(
        sorted(alternatives, key=lambda cause: -cause.confidence)
    )
