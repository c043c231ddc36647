"""Two threads of each rank use one group, and their operations met in another order on one rank than on another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.iterations import in_backward
from hangwatch.analysis.operations.alignment import SequenceSide
from hangwatch.analysis.operations.signatures import describe, signature
from hangwatch.analysis.ranks.threads import find_thread, is_engines, program_part, threads_of
from hangwatch.causes.evidence import at_frame, at_recorder
from hangwatch.causes.rules.rank.threads import working_threads
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.collectives import Operation
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import ThreadStack

#: Each rank has called both, by two threads: it has skipped nothing, and no condition kept it from either.
CROSSED = Signature("thread-order", "both-crossed", "certain", decides=True)
#: One rank has called both, by two threads; the other's second is still to come.
ONE_CROSSED = Signature(
    "thread-order",
    "one-crossed",
    "strong",
    beats=(
        "rank-conditional-collective",
        "skipped-collective",
        "uneven-inputs",
        "checkpoint-on-some-ranks",
        "tuple-labels-gather",
        "shape-mismatch",
        "dtype-mismatch",
        "thread-stall",
    ),
)
#: One has a thread at work still where the other's has called its operation: it comes later.
ON_THE_WAY = Signature(
    "thread-order",
    "another-thread-on-its-way",
    "strong",
    beats=("checkpoint-on-some-ranks", "rank-conditional-collective"),
)
#: Neither rank has come to the other's yet, which each of them has called before by another thread, or has such a thread for.
USUAL = Signature("thread-order", "by-other-threads-before", "likely")
#: So many numbers on, a thread that was passed has its operation: each thread of a few has one in flight.
_NEAR = 8


def thread_order(case: Case) -> Match | None:
    """Where the ranks differ first, the operation of one side is on the other as well, right behind and by another thread."""
    diverged_at = case.blame.diverged_at
    if diverged_at is None or not diverged_at.mismatch:
        return None
    here = case.history.at(diverged_at.group.key, diverged_at.seq)
    sides = [side for side in diverged_at.sides if side.operation is not None]
    for side in sides:
        for other in sides:
            one, two = side.ranks[0], other.ranks[0]
            ours, theirs = here.get(one), here.get(two)
            if side is other or ours is None or theirs is None:
                continue
            passed = _passed_by(case, one, ours, theirs)
            if passed is not None:
                row = CROSSED if _passed_by(case, two, theirs, ours) is not None else ONE_CROSSED
                return _match(case, row, (one, ours), (two, theirs), passed)
    return _by_threads(case, sides, here)


def _by_threads(case: Case, sides: Sequence[SequenceSide], here: Mapping[int, Operation]) -> Match | None:
    """Two sides whose operations come from different threads on either rank, by all that it has called so far."""
    for side, other in permutations(sides, 2):
        one, two = side.ranks[0], other.ranks[0]
        ours, theirs = here.get(one), here.get(two)
        if ours is None or theirs is None or not (_caller(case, one, ours) and _caller(case, two, theirs)):
            continue
        before = _called_by_another(case, one, ours, theirs)
        if before is None:
            continue
        threads = _such_threads(case, (one, ours), (two, theirs))
        if threads or _called_by_another(case, two, theirs, ours) is not None:
            # One that waits to be given something to do may be given nothing.
            at_work = {t.ident for t in working_threads(case.views[two])}
            row = USUAL if at_work.isdisjoint(t.ident for t in threads) else ON_THE_WAY
            return _match(case, row, (one, ours), (two, theirs), before)
    return None


def _called_by_another(case: Case, rank: int, ours: Operation, theirs: Operation) -> Operation | None:
    """What a rank called last that is alike to ``theirs``, if another thread of it called it than calls ``ours``."""
    if signature(ours) == signature(theirs):
        return None
    done = (o for o in reversed(case.history.of(rank)) if o.seq < ours.seq and o.group.key == ours.group.key)
    alike = next((o for o in done if signature(o) == signature(theirs)), None)
    apart = alike is not None and _apart(case, rank, alike, ours)
    return alike if apart else None


def _such_threads(case: Case, caller: tuple[int, Operation], rank: tuple[int, Operation]) -> list[ThreadStack]:
    """The side threads of a rank in the part of the program in which one of another rank has called its operation."""
    (one, ours), (two, theirs) = caller, rank
    called = _calling_thread(case, one, ours)
    if called is None or called.is_main or (part := program_part(called)) is None:
        return []
    own = _caller(case, two, theirs)
    beside = (t for t in threads_of(case.views[two].taken) if not t.is_main and t.ident != own)
    return [t for t in beside if program_part(t) == part]


def _apart(case: Case, rank: int, one: Operation, other: Operation) -> bool:
    """Whether two Python threads of a rank called these."""
    callers = {_caller(case, rank, one), _caller(case, rank, other)}
    return len(callers) == 2 and 0 not in callers


def _passed_by(case: Case, rank: int, ours: Operation, theirs: Operation) -> Operation | None:
    """What a rank called soon after ``ours``, by another thread, and which is alike to ``theirs``."""
    if signature(ours) == signature(theirs):
        return None
    for seq in range(ours.seq + 1, ours.seq + 1 + _NEAR):
        later = case.history.at(ours.group.key, seq).get(rank)
        if later is None:
            return None
        if signature(later) == signature(theirs) and _apart(case, rank, later, ours):
            return later
    return None


def _caller(case: Case, rank: int, operation: Operation) -> int:
    """The Python thread that called an operation, be it by a backward pass that it began; 0 where that is not known.

    The engine has threads of its own, which run while the one that began it waits: the main one, if no other is in backward.
    """
    if not operation.thread or rank not in case.views:
        return 0
    taken = case.views[rank].taken
    if not is_engines(taken, operation):
        return operation.thread
    main = next((t for t in threads_of(taken) if t.is_main), None)
    others = (t for t in threads_of(taken) if not t.is_main)
    return main.ident if main is not None and not any(in_backward(t.frames) for t in others) else 0


def _calling_thread(case: Case, rank: int, operation: Operation) -> ThreadStack | None:
    """That thread as it is now; None where it is not known, or was not seen."""
    caller = _caller(case, rank, operation)
    return find_thread(threads_of(case.views[rank].taken), caller) if caller else None


def _match(
    case: Case, row: Signature, one: tuple[int, Operation], two: tuple[int, Operation], passed: Operation
) -> Match:
    (rank, ours), (other, theirs) = one, two
    said = (
        f"Two threads of each rank use {ours.group.label}: on rank {rank} {_thread(case, rank, ours)} came first with "
        f"{describe(ours)}, on rank {other} {_thread(case, other, theirs)} with {describe(theirs)}, and number {ours.seq} of "
        f"one met that of the other."
    )
    verb = "is" if passed.seq > ours.seq else "was"
    passed_says = (
        f"number {passed.seq} of {passed.group.label} {verb} {describe(passed)}, by {_thread(case, rank, passed)}"
    )
    evidence = (*at_recorder(case, (rank, other)), Evidence(rank, "flight recorder", passed_says))
    for where, operation in ((rank, ours), (rank, passed), (other, theirs)):
        found = _calling_thread(case, where, operation)
        evidence += at_frame(where, found.frames[0], found.name or "") if found is not None else ()
    return Match(row, said, evidence)


def _thread(case: Case, rank: int, operation: Operation) -> str:
    found = _calling_thread(case, rank, operation)
    if found is None:
        return "one thread"
    return "the main thread" if found.is_main else f"thread {found.label}"
