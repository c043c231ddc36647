"""Operations of two ranks compared by where in the program they were issued. Finds what sizes and names cannot show.

Two ranks can be one operation apart for a while without a visible difference: an all_reduce of one float for the log
meets an all_reduce of one float of training, and both go through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from hangwatch.analysis.divergence.relate import Difference, Fork, Side
from hangwatch.analysis.operations.alignment import GroupKey
from hangwatch.analysis.operations.signatures import describe
from hangwatch.analysis.places import call_path, call_site
from hangwatch.analysis.situation import Situation
from hangwatch.model.collectives import Operation
from hangwatch.model.stacks import Frame
from hangwatch.model.text import short_path

#: How many operations back a silent shift is followed.
_REACH = 512
#: So many visits in a row with the same number of calls tell how many calls a visit takes.
_HABIT = 5

CallSite = tuple[str, int]
CallPath = tuple[CallSite, ...]


def _at(case: Situation, rank: int, seq: int) -> Operation | None:
    diverged_at = case.blame.diverged_at
    return case.history.at(diverged_at.group.key, seq).get(rank) if diverged_at is not None else None


def _path(operation: Operation | None) -> CallPath:
    """Return where in the program an operation was called; empty if that is not known."""
    return call_path(operation.frames or ()) if operation is not None else ()


def _call_site(operation: Operation | None) -> CallSite | None:
    return call_site(operation.frames) if operation is not None and operation.frames else None


def _place(operation: Operation | None) -> CallSite | None:
    """Return the call site of an operation; of one that a thread of torch has called, as in a backward on NCCL, what it is."""
    if operation is not None and not operation.frames:
        return describe(operation), 0
    return _call_site(operation)


def first_difference(case: Situation, one: int, other: int) -> Difference | None:
    """Return the call paths where two ranks first called the same number from two places; None if they did not.

    They are those since which the two are out of step, up to the divergence. If no operations differ by name or size, the
    groups that the two wait in now are searched, up to the last number that both have completed. None if they are out of
    step only since the divergence itself, or if such a pair of places is an ordinary one that met before, as the two calls
    of a broadcast under ``if rank == 0: .. else: ..`` do.
    """
    diverged_at = case.blame.diverged_at
    if diverged_at is not None and diverged_at.mismatch:
        return _out_of_step_since(case, diverged_at.group.key, diverged_at.seq - 1, one, other)
    fronts = [o for r in (one, other) if r in case.views and (o := case.views[r].frontier) is not None]
    for key in dict.fromkeys(o.group.key for o in fronts if not o.p2p):
        ends = [case.history.enqueued(r, key) for r in (one, other)]
        known = [end for end in ends if end is not None]
        found = _out_of_step_since(case, key, min(known), one, other) if len(known) == len(ends) else None
        if found is not None:
            return found
    return None


def _out_of_step_since(case: Situation, key: GroupKey, seq: int, one: int, other: int) -> Difference | None:
    """Return the first pair of call paths since which two ranks are out of step up to ``seq``; None if they are in step.

    They are in step where both call from one place and have come to each place equally often. A loop with one operation
    looks the same an iteration apart: only the count tells.
    """
    visited = {r: {_path(o) for o in case.history.of(r)} for r in (one, other)}
    ahead: Counter[CallPath] = Counter()
    found: Difference | None = None
    apart: set[tuple[CallPath, CallPath]] = set()
    ordinary: set[tuple[CallPath, CallPath]] = set()
    met = False
    for now in range(max(1, seq - _REACH + 1), seq + 1):
        here = case.history.at(key, now)
        ours, theirs = here.get(one), here.get(other)
        if any(o is not None and not o.completed for o in (ours, theirs)):
            break  # what they are in now is no difference that went by
        left, right = _path(ours), _path(theirs)
        if ours is None or theirs is None or not left or not right:
            found, met = None, False
            ahead.clear()
            apart.clear()
        elif left != right:
            shared = left in visited[other] or right in visited[one]  # else they have roles, and lines of their own
            ahead.update({left: shared, right: -shared})
            apart.add((left, right))
            if found is None and (shared or (met and left[0] != right[0])):
                found = Difference(key, now, ours.frames or (), theirs.frames or ())
        elif not any(ahead.values()):
            found, met = None, True
            ordinary |= apart
    return None if found is None or (call_path(found.ours), call_path(found.theirs)) in ordinary else found


def calls_usual_operation(case: Situation, rank: int, other: int) -> bool:
    """True if a thread of torch called a rank's operation, as in a backward on NCCL, and the other rank has one alike."""
    diverged_at = case.blame.diverged_at
    now = _at(case, rank, diverged_at.seq) if diverged_at is not None else None
    return now is not None and not now.frames and any(_place(o) == _place(now) for o in case.history.of(other))


def is_new_place(
    case: Situation, rank: int, frames: Sequence[Frame], before: Difference | None = None, depth: int | None = None
) -> bool:
    """True if no rank has completed a collective on the call path ``frames``, on which ``rank`` is now, by the records.

    ``before``: only up to this difference, at which the rank was on that path. ``depth``: so many of its places count.
    """
    path = call_path(frames)[:depth]
    if not path or sum(o.frames is not None for o in case.history.of(rank)) <= 2:
        return False
    front = case.views[rank].frontier if case.ran_ahead(rank) else None
    if front is not None and not front.frames:
        return False  # the host has gone on from where it called this
    # Lazily: most records of a large job are never read.
    return all(
        _path(o)[:depth] != path for r in case.views for o in _until(case, r, before) if o.frames and o.completed
    )


def _until(case: Situation, rank: int, difference: Difference | None) -> Iterator[Operation]:
    """Yield what a rank has called before a difference; all of it without one."""
    operations = case.history.of(rank)
    own = case.history.at(difference.key, difference.seq).get(rank) if difference is not None else None
    return takewhile(lambda o: own is None or o.record_id < own.record_id, operations)


def departing(case: Situation, fork: Fork) -> int | None:
    """Return the rank that left the usual way at a condition, whoever waits; None if either side may have.

    At a condition on the rank it is the rank that is let through, unless either branch has a collective. At any other
    condition it is a rank in a branch where nobody has called anything before, if both sides know the other's place; or
    the one that a guard (``if not batch: return``) stopped, if both have been past it before.
    """
    if fork.only is None or fork.opposite:
        return None
    under, outside = fork.sides
    if fork.ranked:
        return under.rank
    if fork.block is not None and fork.block.kind == "guard":
        return outside.rank if _have_both_called(case, fork, under) else None
    usual = calls_usual_operation(case, outside.rank, under.rank) or _have_both_called(case, fork, outside)
    return under.rank if usual and is_new_place(case, under.rank, under.path, fork.difference) else None


def _have_both_called(case: Situation, fork: Fork, at: Side) -> bool:
    """True if both sides of a fork have completed an operation that they called where one of them is."""
    place = call_site(at.path)
    done = ((o for o in case.history.of(side.rank) if o.completed) for side in fork.sides)
    return place is not None and all(any(_call_site(o) == place for o in operations) for operations in done)


@dataclass(frozen=True)
class EarlyVisit:
    """A place that two ranks used to reach together, and one has now reached sooner, by so many operations (None: not known).

    ``place``: a file and a line, or an operation. ``visits``: how often both were there.
    """

    place: str
    visits: int
    by: int | None


def early_visit(case: Situation, one: int, other: int) -> EarlyVisit | None:
    """Return how early rank ``one`` is at a place that both have always reached at one sequence number; None if it is not.

    ``other`` is not there yet: ``one`` has left something out on the way.
    """
    here = _place_now(case, one)
    if here is None:
        return None
    ours, others = _visits(case, one, here), _visits(case, other, here)
    each = _exceeded(ours)
    mine, theirs = (_arrivals(visits, each or _REACH + 1) for visits in (ours, others))
    if len(mine) < 2 or mine[:-1] != theirs:
        return None
    gaps = {b - a for a, b in pairwise(mine[:-1])}
    last = mine[-1] - mine[-2]
    if not gaps or last >= min(gaps):
        return None  # after one visit it is not known how far apart they are
    place = f"{short_path(here[0])}:{here[1]}" if here[1] else here[0]
    return EarlyVisit(place, len(theirs), min(gaps) - last if len(gaps) == 1 else None)


def _place_now(case: Situation, rank: int) -> CallSite | None:
    """Return the place of a rank's operation where the ranks diverged; None in a record without call sites."""
    diverged_at = case.blame.diverged_at
    known = diverged_at is not None and any(o.frames for o in case.history.of(rank))
    return _place(_at(case, rank, diverged_at.seq)) if known and diverged_at is not None else None


def comes_as_ever(case: Situation, one: int, other: int) -> bool:
    """True if rank ``one`` is on time at a place that both have reached together before, and ``other`` is not there.

    On time: as many operations after the last visit as that was after the one before.
    """
    here = _place_now(case, one)
    if here is None:
        return False
    mine, theirs = ([visit[0] for visit in _visits(case, rank, here)] for rank in (one, other))
    return len(theirs) > 1 and mine[:-1] == theirs and mine[-1] - mine[-2] == mine[-2] - mine[-3]


def _visits(case: Situation, rank: int, place: CallSite) -> list[list[int]]:
    """Return a rank's visits to a place up to the divergence, each as the sequence numbers called there in a row."""
    diverged_at = case.blame.diverged_at
    end = diverged_at.seq if diverged_at is not None else 0
    visits: list[list[int]] = []
    last: CallSite | None = None
    for seq in range(max(1, end - _REACH), end + 1):
        now = _place(_at(case, rank, seq))
        if now == place:
            if last != place:
                visits.append([])
            visits[-1].append(seq)
        last = now
    return visits


def _exceeded(visits: Sequence[Sequence[int]]) -> int | None:
    """Return how many calls a visit usually takes if the present one has more, so that it is two visits; else None."""
    lengths = {len(visit) for visit in visits[-1 - _HABIT : -1]}
    usual = lengths.pop() if len(lengths) == 1 and len(visits) > _HABIT else None
    return usual if usual is not None and len(visits[-1]) > usual else None


def _arrivals(visits: Sequence[Sequence[int]], each: int) -> list[int]:
    """Return the sequence number at which each visit began. In the last row every ``each`` calls are one visit."""
    return [*(visit[0] for visit in visits[:-1]), *(visits[-1][::each] if visits else ())]
