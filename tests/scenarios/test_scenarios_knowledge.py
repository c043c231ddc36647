"""What is known is taken from every proven hang of the catalogue: a proof may go, and never names another rank."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from corpus.catalogue import captured, load_capture, load_catalogue
from corpus.entries import Entry
from hangwatch.model.capture import Capture
from hangwatch.model.collectives import Group
from recorded import unclaimed, without, without_group, without_thread
from scenarios.recording import case_of, sample, verdict_of

ENTRIES = captured(load_catalogue())
FAMILIES = sorted({entry.family for entry in ENTRIES})
SAMPLE = sample(ENTRIES, 20)
PARTS = ("stacks", "flight", "progress", "processes", "sources", "sites", "rank")


def groups_of(capture: Capture) -> set[Group]:
    """All groups with known members that any rank of a capture has a record of."""
    found = set()
    for rank in capture.ranks:
        found |= {p.group for p in (*(rank.progress or ()), *(rank.flight.progress if rank.flight else ()))}
    return {group for group in found if group.ranks}


def poorer(capture: Capture) -> Iterator[tuple[str, Capture]]:
    """The capture with less in it, and what was taken.

    A part of one rank or of all, one thread, the members of a group, or a group from one rank's record, from its beat, or both.
    """
    numbers = [rank.rank for rank in capture.ranks]
    for part in PARTS:
        if part != "rank":
            yield f"{part} of all", without(capture, dict.fromkeys(numbers, frozenset({part})))
        for rank in numbers if len(numbers) > 1 else ():
            yield f"{part} of {rank}", without(capture, {rank: frozenset({part})})
    for group in groups_of(capture):
        for member in group.ranks:
            yield f"who is {member} in {group.label}", unclaimed(capture, {group: frozenset({member})})
        yield f"who is in {group.label}", unclaimed(capture, {group: frozenset(group.ranks)})
        for rank in numbers:
            for parts in (("flight",), ("progress",), ("flight", "progress")):
                what = f"{group.label} in the {' and '.join(parts)} of {rank}"
                yield what, without_group(capture, group, rank, frozenset(parts))
    for one in capture.ranks:
        for thread in {t.os_thread_id for stack in one.stacks for t in stack.threads}:
            yield f"thread {thread} of {one.rank}", without_thread(capture, one.rank, thread)


def proven(family: str, sampled: bool) -> list[Entry]:
    """The hangs of a family whose kept capture is a proof: those of the sample, or the others."""
    found = (one for one in ENTRIES if one.family == family and (one.scenario.name in SAMPLE) is sampled)
    return [entry for entry in found if verdict_of(entry).proven]


def proven_culprits(capture: Capture) -> set[int]:
    """The culprits of the proof, both sides of a tie; none where nothing is proven."""
    case = case_of(capture)
    return set(case.blame.culprits) if case is not None and case.blame.proof is not None else set()


@pytest.mark.usefixtures("long")
@pytest.mark.parametrize(
    "sampled", [pytest.param(True, id="sample"), pytest.param(False, id="others", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_with_less_known_no_other_rank_is_proven_to_be_the_culprit(family: str, sampled: bool) -> None:
    """Of proven hangs of a family, and everything that can be taken from them."""
    wrong = []
    for entry in proven(family, sampled):
        whole = load_capture(entry)
        culprits = proven_culprits(whole)
        for what, capture in poorer(whole):
            named = proven_culprits(capture)
            if not named <= culprits:
                wrong.append(f"{entry.scenario.name} without {what}: {sorted(named)} and not {sorted(culprits)}")
    assert not wrong, "\n".join(wrong)
