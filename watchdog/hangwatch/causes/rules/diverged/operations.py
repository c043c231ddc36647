"""Operations that do not meet: of one name with different tensors, or different ones, and that is all that is known."""

from __future__ import annotations

import re

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.relate import CONDITIONS, Fork, Side, own_blocks, shared_loop
from hangwatch.analysis.operations.signatures import signature
from hangwatch.analysis.places import bare, call_site, is_program
from hangwatch.analysis.ranks.failing import does_not_fit
from hangwatch.analysis.ranks.threads import is_engines
from hangwatch.analysis.ranks.views import root_of
from hangwatch.causes.evidence import at_fork, at_recorder, at_stack
from hangwatch.causes.match import Match
from hangwatch.model.collectives import Operation
from hangwatch.model.incident import Evidence
from hangwatch.program.lines import header_of, read_header

_NAME = re.compile(r"[A-Za-z_]\w*")
_COMPREHENSION = re.compile(r"(?<!async )\b(for [\w, ()]+ in (?:(?! if | for ).)+)[\])}]")


def tensors(case: Case) -> Match | None:
    """Return a match if the sides brought different sizes or types to one operation by name."""
    diverged_at = case.blame.diverged_at
    one, other = case.representatives
    if diverged_at is None or one is None or other is None:
        return None
    here = case.history.at(diverged_at.group.key, diverged_at.seq)
    ours, theirs = here.get(one), here.get(other)
    if ours is None or theirs is None or ours.op != theirs.op or _of_one_backward(case, (one, ours), (other, theirs)):
        return None
    fork = case.paths.fork if case.paths is not None else None
    same_place = fork is not None and (fork.relation == "same" or in_each_branch(fork))
    types = ours.input_dtypes != theirs.input_dtypes
    if signature(ours) == signature(theirs):
        return None
    evidence = at_recorder(case, (one, other)) + at_stack(case, one) + at_stack(case, other)
    what = "types" if types else "sizes"
    said = (
        f"Ranks {one} and {other} both call {ours.op} (sequence number {diverged_at.seq}), but with "
        f"tensors of different {what}."
    )
    cause = "dtype-mismatch" if types else "shape-mismatch"
    return Match(cause, "strong" if same_place else "possible", said, evidence)


def _of_one_backward(case: Case, *calls: tuple[int, Operation]) -> bool:
    """True if a backward pass has called one of the two, and the program itself the other: these are not meant to meet."""
    engines = [rank in case.views and is_engines(case.views[rank].taken, o) for rank, o in calls]
    return len(set(engines)) > 1 and all(engine or o.frames for engine, (_, o) in zip(engines, calls, strict=True))


def roots(case: Case) -> Match | None:
    """Return a match if ranks have named different roots of one operation: another ``src`` or ``dst``."""
    first: dict[tuple[object, ...], tuple[int, int]] = {}
    for rank, view in case.views.items():
        front = view.frontier
        if front is None or front.p2p or (root := root_of(view)) is None or case.ran_ahead(rank):
            continue
        one, other = first.setdefault((front.group.key, front.seq, front.op), (rank, root))
        if root != other:
            said = (
                f"Rank {one} names rank {other} as the root of {front.op} (sequence number {front.seq}), but rank {rank} "
                f"names rank {root}."
            )
            evidence = at_recorder(case, (one, rank)) + at_stack(case, one) + at_stack(case, rank)
            return Match("collective-mismatch", "strong", said, evidence)
    return None


def branches(case: Case) -> Match | None:
    """Return a match if the two branches of one condition each call a collective themselves, and not the same one."""
    diverged_at, fork = case.blame.diverged_at, case.fork
    if diverged_at is None or not diverged_at.mismatch or fork is None or not in_each_branch(fork):
        return None
    here = case.history.at(diverged_at.group.key, diverged_at.seq)
    pair = [(side, here.get(side.rank)) for side in (fork.culprit, fork.other)]
    if any(o is not None and o.frames and call_site(o.frames) != call_site(side.path) for side, o in pair):
        return None  # the operations of the branches have met: the mismatch came later
    if len({o.op for o in here.values()}) < 2:
        return None
    at = [f"`{side.at.source}`" for side in (fork.culprit, fork.other) if side.at is not None]
    said = (
        f"Ranks {fork.culprit.rank} and {fork.other.rank} are in the two branches of one condition, at "
        f"{' and '.join(at)}."
    )
    return Match("collective-mismatch", "strong", said, at_fork(case, fork))


def items(case: Case) -> Match | None:
    """Return a match if one line of a loop has called another function on each side, as its items differ."""
    diverged_at, fork = case.blame.diverged_at, case.fork
    if diverged_at is None or not diverged_at.mismatch or fork is None:
        return None
    if fork.one_function:
        return _by_item(case, fork)
    callers = [side.path[len(side.tail)] for side in (fork.culprit, fork.other) if len(side.path) > len(side.tail)]
    if len({(f.file, f.line) for f in callers}) != 1 or len(callers) < 2 or not is_program(callers[0]):
        return None
    source = callers[0].source or ""
    loop = next((b.text for b in reversed(callers[0].blocks) if b.kind == "for"), "")
    # A comprehension without a condition goes through all items.
    goes = next((text for text in (*_COMPREHENSION.findall(source), loop) if _calls_its_items(source, text)), None)
    entered = {bare(side.tail[-1]) for side in (fork.culprit, fork.other) if side.tail}
    if goes is None or any(f"{name}(" in goes for name in entered):
        return None
    said = (
        f"Ranks {fork.culprit.rank} and {fork.other.rank} are at the same line, `{source}`, in "
        f"different functions: the items of `{goes}`, or their order, differ between the ranks."
    )
    return Match("collective-mismatch", "strong", said, at_fork(case, fork))


def _calls_its_items(source: str, loop: str) -> bool:
    """True if a line calls what a loop around it, or in it, goes through."""
    return any(re.search(rf"\b{name}\b(?:\.\w+)*\(", source) for name in read_header(loop).binds)


def _by_item(case: Case, fork: Fork) -> Match | None:
    """Return a match if the sides are in two branches of a condition on the items of a dictionary that both go through."""
    inside, other = fork.sides
    if inside.at is None or other.at is None or fork.block is None or not fork.opposite:
        return None
    loop = shared_loop(inside.at, other.at)
    if loop is None or not header_of(loop).over.endswith((".items()", ".keys()")):
        return None
    if header_of(fork.block).names.isdisjoint(header_of(loop).binds):
        return None
    said = (
        f"Ranks {inside.rank} and {other.rank} are in the two branches of `{fork.block.text}`, in "
        f"`{loop.text}`: the items, or their order, differ between the ranks."
    )
    return Match("collective-mismatch", "strong", said, at_fork(case, fork))


def in_each_branch(fork: Fork) -> bool:
    """True if each side is in another branch of one condition, at a call there, and under no further condition.

    What a function calls further down is none of the condition's. What ``if rank == 0:`` is around in one branch is
    left out by the others.
    """
    return fork.opposite and all(
        next((f for f in side.path if is_program(f)), None) == side.at and not _is_under_more(side, other)
        for side, other in fork.both_ways
    )


def _is_under_more(side: Side, other: Side) -> bool:
    """True if a side is under a condition of its own that the other one is in no branch of."""
    there = {b.line for b in other.at.blocks} if other.at is not None else set()
    return any(b.kind in CONDITIONS and b.line not in there for b in own_blocks(side, other))


def mismatch(case: Case) -> Match | None:
    """Return a match for different operations that met, if that is all that can be said."""
    diverged_at = case.blame.diverged_at
    wrong_pair = diverged_at is not None and diverged_at.mismatch
    if not wrong_pair and (case.blame.shape != "cycle" or _in_store(case)):
        return None
    if diverged_at is not None and wrong_pair and len({o.op for s in diverged_at.sides if (o := s.operation)}) == 1:
        return None  # one operation with different tensors, which is a cause of its own
    one, other = case.representatives
    shown = tuple(r for r in (one, other) if r is not None)
    evidence = at_recorder(case, shown) + tuple(e for r in shown for e in at_stack(case, r))
    if diverged_at is not None and wrong_pair:
        went = " This wrong pair completed, and every operation since is out of step." if diverged_at.silent else ""
        said = (
            f"At sequence number {diverged_at.seq} of {diverged_at.group.label} the ranks called "
            f"different operations.{went}"
        )
    else:
        said = "The ranks wait for each other in different operations."
    return Match("collective-mismatch", "seen", said, evidence)


def message(case: Case) -> Match | None:
    """Return a match if Gloo has ended a rank because of a message's size, and no record shows the other side."""
    ended = [rank for rank in case.capture.ranks if does_not_fit(rank)]
    if not ended or (case.blame.diverged_at is not None and case.blame.diverged_at.mismatch):
        return None
    evidence = tuple(Evidence(rank.rank, "log", rank.log_error[-1]) for rank in ended)
    evidence += tuple(e for r, view in case.views.items() if view.wait is not None for e in at_stack(case, r))
    said = f"Gloo has ended rank {ended[0].rank}: what another rank sent has another size than the collective that it had called."
    return Match("collective-mismatch", "strong", said, evidence)


def _in_store(case: Case) -> bool:
    """True if a rank waits for a key of a store, which is no operation of all ranks."""
    waits = (case.views[r].wait for r in (*case.blame.culprits, *case.blame.waiting) if r in case.views)
    return any(w is not None and w.kind == "store" for w in waits)
