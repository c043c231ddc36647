"""Ranks that wait for each other: the first cause says whose doing it is, or both sides are named."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from corpus.catalogue import load_capture, load_catalogue
from corpus.entries import Entry, Truth
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.incident import Verdict
from hangwatch.model.numbers import is_guest
from replicas import reduced
from scenarios.recording import kept_hangs, verdict_of

#: Hangs in which every rank is a culprit.
TIES = [(e, t) for e, t in kept_hangs(load_catalogue()) if 1 < len(t.culprits) == e.scenario.ranks]
#: Of the ties in which a side did it. In the rest both are named: what parted the ranks does not say who left the others' way.
RIGHT, WRONG = 0.7, 0.02
#: Of pairs of ranks, taken from larger jobs, so many of those in which a side is named name who is outnumbered there. The rest
#: are no errors as a rule: who is outnumbered may be who stayed in a loop that the others have left.
AS_OUTNUMBERED = 0.9
#: Of so many hangs, and at least so many times a side has to be named.
LOOKED_AT, NAMED, SEED = 350, 90, 20261129


def _side(verdict: Verdict) -> tuple[int, ...]:
    return verdict.culprit_ranks if verdict.culprits_from == "cause" else ()


def test_the_side_that_did_it_is_named_or_both_are() -> None:
    """By truths that were written from the programs."""
    assert len(TIES) >= 90
    sided = [(e, t.culprit_side) for e, t in TIES if t.culprit_side is not None]
    assert len(sided) >= 28
    missed = {e.scenario.name: _side(verdict_of(e)) for e, side in sided if _side(verdict_of(e)) != side}
    assert len(missed) <= (1 - RIGHT) * len(sided), missed
    assert sum(bool(named) for named in missed.values()) <= WRONG * len(sided), missed


def test_nobody_is_named_where_neither_side_did_more() -> None:
    """Sends that face each other, groups in two orders, tensors of two sizes."""
    named = {e.scenario.name: _side(verdict_of(e)) for e, t in TIES if t.culprit_side is None and _side(verdict_of(e))}
    assert not named


def test_a_tie_is_proven_as_ever_and_the_other_side_waits() -> None:
    """Naming a side takes nobody out of the verdict, and shows that side's line as the culprits'."""
    for entry, truth in TIES:
        verdict = verdict_of(entry)
        if _side(verdict):
            assert sorted((*verdict.culprit_ranks, *verdict.waiting_ranks)) == sorted(truth.culprits)
            line = verdict.divergence.culprit if verdict.divergence is not None else None
            assert line is None or not set(line.ranks) - set(verdict.culprit_ranks), entry.scenario.name


def _pairs() -> Iterator[tuple[Entry, Truth, Verdict, int]]:
    """One culprit and one of those who wait for it, of each hang of more ranks that was seen right, as a job of two; and
    which of these two the culprit is."""
    for entry, truth in random.Random(SEED).sample(list(kept_hangs(load_catalogue())), LOOKED_AT):
        whole = verdict_of(entry)
        divergence = whole.divergence
        if divergence is None or set(whole.culprit_ranks) != set(truth.culprits) or len(truth.culprits) != 1:
            continue
        capture = load_capture(entry)
        seen = {rank.rank for rank in capture.ranks}
        shown = divergence.others.ranks if divergence.others is not None else ()
        other = next((rank for rank in (*shown, *whole.waiting_ranks) if rank in whole.waiting_ranks), None)
        (culprit,) = whole.culprit_ranks
        if other is None or not {culprit, other} <= seen or any(map(is_guest, seen)):
            continue
        place = random.Random(entry.scenario.name).randrange(2)
        two = reduced(capture, {culprit: place, other: 1 - place})
        yield entry, truth, diagnose(two).verdict, place


@pytest.mark.soak
def test_the_side_is_the_one_that_is_outnumbered_in_larger_jobs() -> None:
    """What a larger job shows by who waits for whom, two of its ranks show by their cause."""
    counts: Counter[str] = Counter()
    other = []
    for entry, _truth, verdict, culprit in _pairs():
        named = _side(verdict)
        counts["named" if named else "open"] += 1
        if named and named != (culprit,):
            other.append((entry.scenario.name, verdict.cause.id if verdict.cause is not None else None))
    assert counts["named"] > NAMED, counts
    assert len(other) <= (1 - AS_OUTNUMBERED) * counts["named"], (counts, other)
