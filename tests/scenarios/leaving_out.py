"""How the rules do on each family of programs without the rows that only this family has shown to be right.

A rule cannot be forgotten, but a row can: of a family those rows are left out that came first and were right in no other
family. This is the harsher side of the truth about programs never seen, as a rule offers one row only, and where that is left out
says nothing at all. The kinder side is that what the rules read (conditions, loops, waits) was written with all families in
view, and that rows do not touch who is blamed. What was said of families before any rule had been corrected on them stands in
``README.md``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from hangwatch.analysis.case import Case
from hangwatch.causes.registry import find_matches, weigh
from hangwatch.causes.signature import Match
from hangwatch.diagnosis.causes import shown
from scenarios.catalogue import Entry
from scenarios.recording import case_of, kept_hangs, load

#: Among how many of the causes that are shown the true one is looked for.
_FIRST = 3


class Hang(msgspec.Struct, frozen=True):
    """A kept hang: its true cause, and all that fits it."""

    name: str
    family: str
    truth: str
    case: Case
    found: tuple[Match, ...]


class Outcome(msgspec.Struct, frozen=True):
    """What came first of a hang, and whether the true cause was first, or among the first three."""

    name: str
    family: str
    row: str
    first: bool
    in_three: bool


def find_all(entries: Iterable[Entry]) -> list[Hang]:
    """What fits every kept hang."""
    hangs = []
    for entry, truth in kept_hangs(entries):
        case = case_of(load(entry))
        assert case is not None, f"{entry.scenario.name} is taken for healthy"
        hangs.append(Hang(entry.scenario.name, entry.family, truth.cause, case, tuple(find_matches(case))))
    return hangs


def judge_with_all(hangs: Sequence[Hang]) -> list[Outcome]:
    """By all rows."""
    return [_outcome(hang, hang.found) for hang in hangs]


def judge_left_out(hangs: Sequence[Hang]) -> list[Outcome]:
    """Each family by the rows that came first and were right in another one, and by what is said where nothing fits."""
    right = defaultdict(set)
    for outcome in judge_with_all(hangs):
        if outcome.first:
            right[outcome.row].add(outcome.family)
    return [
        _outcome(hang, [m for m in hang.found if m.signature.general or right[m.signature.id] - {hang.family}])
        for hang in hangs
    ]


def _outcome(hang: Hang, found: Sequence[Match]) -> Outcome:
    causes = shown(weigh(hang.case, found))
    right = [match.signature.cause == hang.truth for match in causes[:_FIRST]]
    return Outcome(hang.name, hang.family, causes[0].signature.id, right[0], any(right))


def shares(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """In which share of the hangs the true cause came first, and was among the first three."""
    return sum(o.first for o in outcomes) / len(outcomes), sum(o.in_three for o in outcomes) / len(outcomes)
