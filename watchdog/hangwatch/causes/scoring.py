"""The one place that weighs: which of the rows that fit a case comes first, in whatever order rules are listed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hangwatch.causes.signature import Match, Signature


def order(found: Iterable[Match]) -> tuple[Match, ...]:
    """The matches, the surest first and one a cause: by level, then by what beats what, then by the rows' names."""
    left = sorted(found, key=lambda match: (match.signature.weight, match.signature.id))
    ordered: dict[str, Match] = {}
    while left:
        best = _unbeaten(left)
        left.remove(best)
        ordered.setdefault(best.signature.cause, best)
    return tuple(ordered.values())


def with_alternatives(found: Sequence[Match], more: Sequence[Match]) -> tuple[Match, ...]:
    """The ordered matches, with what the first may be taken for before those that only say what was seen."""
    first, *rest = found
    named = {match.signature.cause for match in found}
    sure = [match for match in rest if not match.signature.general]
    added = [match for match in more if match.signature.cause not in named]
    return (first, *sure, *added, *rest[len(sure) :])


def _unbeaten(left: Sequence[Match]) -> Match:
    """The first of the surest level that no other of it beats; where they beat each other in a circle, the first."""
    level = [match for match in left if match.signature.weight == left[0].signature.weight]
    free = (m for m in level if not any(beats(other.signature, m.signature) for other in level if other is not m))
    return next(free, level[0])


def beats(one: Signature, other: Signature) -> bool:
    """Whether a row goes before another one of the same level."""
    return other.id in one.beats or (other.cause in one.beats and other.id != one.id)
