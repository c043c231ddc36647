"""Which of the causes that fit a case comes first: the surer one, and of two alike the one that explains the other. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hangwatch.causes.match import LEVELS, Match

#: These causes only say what was seen: where a rank is, that ways part, what does not fit. Any other cause of the same level
#: says why and goes before them. The later in this list, the more general.
GENERAL = (
    "ranks-diverged",
    "busy-loop",
    "shape-mismatch",
    "dtype-mismatch",
    "dataloader-stall",
    "init-missing-rank",
    "child-stall",
    "blocked-io",
)
#: Of two other causes at one level the first goes before the second, for the reason beside it. All others go by their names.
PRECEDENCE: tuple[tuple[str, str, str], ...] = (
    ("group-creation-mismatch", "checkpoint-on-some-ranks", "saving creates a group, which every rank has to do"),
    ("gil-held", "rank0-work", "one call that keeps all other threads from running says more than that the rank works"),
    ("gil-held", "straggler", "one call that keeps all other threads from running says why the rank is late"),
    ("peer-world-lost", "early-exit", "processes of another job wait for the rank, whatever ended it"),
    ("rank-raised", "early-exit", "the exit status says that the rank failed"),
    ("sharded-forward-divergence", "group-order-inversion", "other modules of the model use other groups"),
    ("thread-order", "checkpoint-on-some-ranks", "every rank saves, in another order than its main thread goes on"),
    ("waits-for-request", "thread-stall", "the thread that the rank waits for reads its next request"),
    ("loss-zero-lr-frozen", "loss-nan-data-mix", "all steps were skipped, so no batch can have spoiled the weights"),
    ("loss-zero-overlap-comm", "loss-nan", "a reduction that is known to go wrong explains what the log prints"),
    ("loss-zero-overlap-comm", "loss-nan-data-mix", "the loss did not grow before, as it does of a bad batch"),
)
_BEFORE = frozenset((first, second) for first, second, _ in PRECEDENCE)


def order(found: Iterable[Match]) -> tuple[Match, ...]:
    """Return the matches, the first to be named first and one a cause, in whatever order they come."""
    left = sorted(found, key=_place)
    ordered: dict[str, Match] = {}
    while left:
        best = _first(left)
        left.remove(best)
        ordered.setdefault(best.cause, best)
    return tuple(ordered.values())


def goes_before(one: Match, other: Match) -> bool:
    """Return whether a cause goes before another for a reason: it is surer, or it says why, or explains the other.

    Its name is no reason.
    """
    if one.level != other.level:
        return LEVELS.index(one.level) < LEVELS.index(other.level)
    return (one.cause, other.cause) in _BEFORE or (other.cause in GENERAL and one.cause not in GENERAL)


def with_alternatives(found: Sequence[Match], more: Sequence[Match]) -> tuple[Match, ...]:
    """Return the ordered matches, with what the first may be mistaken for before those that only say what was seen."""
    first, *rest = found
    named = {match.cause for match in found}
    sure = [match for match in rest if match.level != "seen"]
    added = [match for match in more if match.cause not in named]
    return (first, *sure, *added, *rest[len(sure) :])


def _place(match: Match) -> tuple[int, int, str]:
    """Return what a match is sorted by: its level, how general its cause is, and the cause's name."""
    general = GENERAL.index(match.cause) + 1 if match.cause in GENERAL else 0
    return LEVELS.index(match.level), general, match.cause


def _first(left: Sequence[Match]) -> Match:
    """Return the match of the surest level before which no other one goes; if each has one before it, the first by name."""
    level = [match for match in left if match.level == left[0].level]
    free = (one for one in level if not any((other.cause, one.cause) in _BEFORE for other in level))
    return next(free, level[0])
