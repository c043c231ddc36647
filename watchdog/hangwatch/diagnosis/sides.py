"""Ranks that wait for each other are a tie: the waits name no culprit, but the first cause may say whose doing it is. Pure."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import call_site
from hangwatch.causes.match import Match


def name_side(case: Case, first: Match) -> Case:
    """Return the case with one side of a tie as its culprits: the one that did what the ``first`` cause says.

    Return it unchanged if the waits already name culprits, the cause leaves it open, or there are more than two sides.
    """
    blame = case.blame
    if blame.shape != "cycle" or blame.waiting or first.side not in blame.culprits:
        return case
    places = {rank: _place(case, rank) for rank in blame.culprits}
    culprits = tuple(rank for rank, place in places.items() if place == places[first.side])
    others = tuple(rank for rank in places if rank not in culprits)
    if len({places[rank] for rank in others}) != 1:
        return case
    return replace(case, blame=replace(blame, culprits=culprits, waiting=others))


def _place(case: Case, rank: int) -> object:
    """Return what the ranks of one side share: what they called where the ranks diverged, else the line they are in."""
    diverged_at = case.blame.diverged_at
    side = diverged_at.side_of(rank) if diverged_at is not None else None
    return side.ranks if side is not None else call_site(case.side_frames(rank)) or rank
