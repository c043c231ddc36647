"""Operations of two ranks compared by where in the program they were issued. Finds what sizes and names cannot show.

Two ranks can be one operation apart for a while without a visible difference: an all_reduce of one float for the log
meets an all_reduce of one float of training, and both go through.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hangwatch.analysis.case import Case
from hangwatch.causes.frames import site
from hangwatch.model.collectives import Operation
from hangwatch.model.stacks import Frame

#: How far back a silent shift is followed.
_REACH = 512

Site = tuple[str, int]


def _at(case: Case, rank: int, seq: int) -> Operation | None:
    parting = case.blame.parting
    return case.history.at(parting.group.key, seq).get(rank) if parting is not None else None


def _site(operation: Operation | None) -> Site | None:
    return site(operation.frames) if operation is not None and operation.frames else None


def first_difference(case: Case, one: int, other: int) -> tuple[tuple[Frame, ...], tuple[Frame, ...]] | None:
    """Call paths at the first of the unbroken run of operations, up to the parting, that were issued from two places.

    None where the run starts at the parting itself, or its first pair is an ordinary one: places that met before, such
    as the two calls of a broadcast under ``if rank == 0: .. else: ..``.
    """
    parting = case.blame.parting
    if parting is None or not parting.mismatch:
        return None
    found: tuple[tuple[Frame, ...], tuple[Frame, ...]] | None = None
    pair: tuple[Site, Site] | None = None
    seq = parting.seq - 1
    while seq > max(0, parting.seq - _REACH):
        ours, theirs = _at(case, one, seq), _at(case, other, seq)
        left, right = _site(ours), _site(theirs)
        if ours is None or theirs is None or left is None or right is None or left == right:
            break
        found, pair = (ours.frames or (), theirs.frames or ()), (left, right)
        seq -= 1
    if found is None or pair is None:
        return None
    earlier = range(max(1, seq - _REACH), seq + 1)
    ordinary = any((_site(_at(case, one, n)), _site(_at(case, other, n))) == pair for n in earlier)
    return None if ordinary else found


@dataclass(frozen=True)
class EarlyVisit:
    """A place both ranks used to come to together, and one came to sooner. ``by``: operations, where the habit tells."""

    file: str
    line: int
    visits: int
    by: int | None


def early_visit(case: Case, one: int, other: int) -> EarlyVisit | None:
    """Whether rank ``one`` is at a place to which the two have always come at the same sequence number, and ``other``
    is not there yet: ``one`` has left something out on the way."""
    parting = case.blame.parting
    own = _at(case, one, parting.seq) if parting is not None else None
    here = _site(own)
    if parting is None or here is None:
        return None
    upto = range(max(1, parting.seq - _REACH), parting.seq + 1)
    mine = [seq for seq in upto if _site(_at(case, one, seq)) == here]
    theirs = [seq for seq in upto if _site(_at(case, other, seq)) == here]
    if len(mine) < 2 or mine[:-1] != theirs:
        return None
    gaps = {b - a for a, b in pairwise(mine[:-1])}
    last = mine[-1] - mine[-2]
    if gaps and last >= min(gaps):
        return None
    return EarlyVisit(here[0], here[1], len(theirs), min(gaps) - last if len(gaps) == 1 else None)
