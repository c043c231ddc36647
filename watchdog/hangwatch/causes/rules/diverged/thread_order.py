"""Two threads of each rank use one group, and their operations met in another order on one rank than on another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.iterations import in_backward
from hangwatch.analysis.operations.signatures import describe, signature
from hangwatch.analysis.ranks.threads import find_thread, is_engines, program_part, threads_of
from hangwatch.causes.evidence import at_frame, at_recorder
from hangwatch.causes.match import Level, Match
from hangwatch.causes.rules.rank.threads import working_threads
from hangwatch.model.collectives import Operation
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import ThreadStack

#: A thread that was overtaken has its operation within so many numbers: few threads have one each in flight.
_NEAR = 8


def thread_order(case: Case) -> Match | None:
    """Return a match if the operation of one side is on the other as well, right behind and by another thread."""
    diverged_at = case.blame.diverged_at
    if diverged_at is None or not diverged_at.mismatch:
        return None
    here = case.history.at(diverged_at.group.key, diverged_at.seq)
    called = [(side.ranks[0], o) for side in diverged_at.sides if (o := here.get(side.ranks[0])) is not None]
    for (one, ours), (two, theirs) in permutations(called, 2):
        passed = _passed_by(case, one, ours, theirs)
        if passed is not None:
            level: Level = "certain" if _passed_by(case, two, theirs, ours) is not None else "strong"
            return _match(case, level, (one, ours), (two, theirs), passed)
    return _by_threads(case, called)


def _by_threads(case: Case, called: Sequence[tuple[int, Operation]]) -> Match | None:
    """Return a match if the sides' operations come from different threads on either rank, by all that it has called so far."""
    for (one, ours), (two, theirs) in permutations(called, 2):
        if not (_caller(case, one, ours) and _caller(case, two, theirs)):
            continue
        before = _called_by_another(case, one, ours, theirs)
        if before is None:
            continue
        threads = _such_threads(case, (one, ours), (two, theirs))
        if threads or _called_by_another(case, two, theirs, ours) is not None:
            # A thread that waits to be given something to do may never be.
            at_work = {t.ident for t in working_threads(case.views[two])}
            level: Level = "likely" if at_work.isdisjoint(t.ident for t in threads) else "strong"
            return _match(case, level, (one, ours), (two, theirs), before)
    return None


def _called_by_another(case: Case, rank: int, ours: Operation, theirs: Operation) -> Operation | None:
    """Return the last call of a rank that looks like ``theirs``, if another thread made it than calls ``ours``; else None."""
    done = (o for o in reversed(case.history.of(rank)) if o.seq < ours.seq and o.group.key == ours.group.key)
    alike = next((o for o in done if signature(o) == signature(theirs)), None)
    apart = alike is not None and _apart(case, rank, alike, ours)
    return alike if apart else None


def _such_threads(case: Case, caller: tuple[int, Operation], rank: tuple[int, Operation]) -> list[ThreadStack]:
    """Return the side threads of ``rank`` in the part of the program in which ``caller``'s thread called its operation."""
    (one, ours), (two, theirs) = caller, rank
    called = _calling_thread(case, one, ours)
    if called is None or called.is_main or (part := program_part(called)) is None:
        return []
    own = _caller(case, two, theirs)
    beside = (t for t in threads_of(case.views[two].taken) if not t.is_main and t.ident != own)
    return [t for t in beside if program_part(t) == part]


def _apart(case: Case, rank: int, one: Operation, other: Operation) -> bool:
    """True if two Python threads of a rank called these."""
    callers = {_caller(case, rank, one), _caller(case, rank, other)}
    return len(callers) == 2 and 0 not in callers


def _passed_by(case: Case, rank: int, ours: Operation, theirs: Operation) -> Operation | None:
    """Return what another thread of a rank called soon after ``ours`` and looks like ``theirs``; None if there is none."""
    for seq in range(ours.seq + 1, ours.seq + 1 + _NEAR):
        later = case.history.at(ours.group.key, seq).get(rank)
        if later is None:
            return None
        if signature(later) == signature(theirs) and _apart(case, rank, later, ours):
            return later
    return None


def _caller(case: Case, rank: int, operation: Operation) -> int:
    """Return the Python thread that called an operation, itself or by a backward pass that it began; 0 if not known.

    The engine has threads of its own, which run while the one that began it waits: the main one, if no other is in
    backward.
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
    """Return the thread that called an operation as it is now; None if it is not known, or was not seen."""
    caller = _caller(case, rank, operation)
    return find_thread(threads_of(case.views[rank].taken), caller) if caller else None


def _match(
    case: Case, level: Level, one: tuple[int, Operation], two: tuple[int, Operation], passed: Operation
) -> Match:
    (rank, ours), (other, theirs) = one, two
    said = (
        f"Two threads of each rank use {ours.group.label}. On rank {rank} {_thread(case, rank, ours)} "
        f"came first with {describe(ours)}, on rank {other} {_thread(case, other, theirs)} came first "
        f"with {describe(theirs)}. The two met at sequence number {ours.seq}."
    )
    verb = "is" if passed.seq > ours.seq else "was"
    passed_says = (
        f"sequence number {passed.seq} of {passed.group.label} {verb} {describe(passed)}, called by "
        f"{_thread(case, rank, passed)}"
    )
    evidence = (*at_recorder(case, (rank, other)), Evidence(rank, "flight recorder", passed_says))
    for where, operation in ((rank, ours), (rank, passed), (other, theirs)):
        found = _calling_thread(case, where, operation)
        evidence += at_frame(where, found.frames[0], found.name or "") if found is not None else ()
    return Match("thread-order", level, said, evidence)


def _thread(case: Case, rank: int, operation: Operation) -> str:
    found = _calling_thread(case, rank, operation)
    if found is None:
        return "one thread"
    return "the main thread" if found.is_main else f"thread {found.label}"
