"""Operations that do not meet: of one name with different tensors, or different ones, and that is all that is known."""

from __future__ import annotations

import re

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.frames import call_site, is_program
from hangwatch.analysis.divergence.relate import CONDITIONS, Fork, Side, own_blocks, shared_loop
from hangwatch.analysis.operations.signatures import signature
from hangwatch.analysis.places import bare
from hangwatch.analysis.ranks.threads import is_engines
from hangwatch.causes.evidence import at_fork, at_recorder, at_stack
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.collectives import Operation

_NAME = re.compile(r"[A-Za-z_]\w*")
_COMPREHENSION = re.compile(r"(?<!async )\b(for [\w, ()]+ in (?:(?! if | for ).)+)[\])}]")
#: The calls are meant to meet, whatever they are under.
SHAPES = Signature("shape-mismatch", "one-line", "strong", beats=("rank-conditional-collective",))
#: The same.
DTYPES = Signature("dtype-mismatch", "one-line", "strong", beats=("rank-conditional-collective",))
SHAPES_ELSEWHERE = Signature("shape-mismatch", "two-places", "possible")
DTYPES_ELSEWHERE = Signature("dtype-mismatch", "two-places", "possible")
#: Each side has a collective of its own there, so that none is left out.
ONE_IN_EACH_BRANCH = Signature(
    "collective-mismatch", "one-in-each-branch", "strong", beats=("rank-conditional-collective", "skipped-collective")
)
#: A line that all ranks come by with each item leaves none of them out.
ITEMS_IN_ANOTHER_ORDER = Signature(
    "collective-mismatch",
    "items-in-another-order",
    "strong",
    beats=(
        "skipped-collective/early-by-count",
        "skipped-collective/left-in-an-earlier-iteration",
        "skipped-collective/usual-block-left-out",
        "rank-conditional-collective",
    ),
)
MISMATCH = Signature("collective-mismatch", "wrong-pair", "possible", general=True, beats=("unknown",))
MISMATCH_IN_A_CYCLE = Signature("collective-mismatch", "cycle", "possible", general=True, beats=("unknown",))


def tensors(case: Case) -> Match | None:
    """One operation by name and place in the program, and yet the sides brought different sizes or types."""
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
    row = (DTYPES if same_place else DTYPES_ELSEWHERE) if types else (SHAPES if same_place else SHAPES_ELSEWHERE)
    said = f"Ranks {one} and {other} both call {ours.op} at number {diverged_at.seq}, with tensors of different {what}."
    return Match(row, said, evidence)


def _of_one_backward(case: Case, *calls: tuple[int, Operation]) -> bool:
    """Whether a backward pass has called one of the two, and the program itself the other: these are not meant to meet."""
    engines = [rank in case.views and is_engines(case.views[rank].taken, o) for rank, o in calls]
    return len(set(engines)) > 1 and all(engine or o.frames for engine, (_, o) in zip(engines, calls, strict=True))


def branches(case: Case) -> Match | None:
    """The two branches of one condition each call a collective themselves, and not the same one."""
    diverged_at, fork = case.blame.diverged_at, case.fork
    if diverged_at is None or not diverged_at.mismatch or fork is None or not in_each_branch(fork):
        return None
    here = case.history.at(diverged_at.group.key, diverged_at.seq)
    pair = [(side, here.get(side.rank)) for side in (fork.mine, fork.theirs)]
    if any(o is not None and o.frames and call_site(o.frames) != call_site(side.path) for side, o in pair):
        return None  # those in the branches have met: what did not came later
    if len({o.op for o in here.values()}) < 2:
        return None
    at = [f"`{side.at.source}`" for side in (fork.mine, fork.theirs) if side.at is not None]
    said = f"Ranks {fork.mine.rank} and {fork.theirs.rank} are in the two branches of one condition, in {' and '.join(at)}."
    return Match(ONE_IN_EACH_BRANCH, said, at_fork(case, fork))


def items(case: Case) -> Match | None:
    """One line of a loop has called another function on each side, as what it goes through is another there."""
    diverged_at, fork = case.blame.diverged_at, case.fork
    if diverged_at is None or not diverged_at.mismatch or fork is None:
        return None
    if fork.one_function:
        return _by_item(case, fork)
    callers = [side.path[len(side.tail)] for side in (fork.mine, fork.theirs) if len(side.path) > len(side.tail)]
    if len({(f.file, f.line) for f in callers}) != 1 or len(callers) < 2 or not is_program(callers[0]):
        return None
    source = callers[0].source or ""
    loop = next((b.text for b in reversed(callers[0].blocks) if b.kind == "for"), "")
    # A comprehension goes through all there is, if it has no condition.
    goes = next((text for text in (*_COMPREHENSION.findall(source), loop) if _calls_its_items(source, text)), None)
    entered = {bare(side.tail[-1]) for side in (fork.mine, fork.theirs) if side.tail}
    if goes is None or any(f"{name}(" in goes for name in entered):
        return None
    said = (
        f"Ranks {fork.mine.rank} and {fork.theirs.rank} are in one line, `{source}`, which calls what it goes through: "
        f"`{goes}` is in another order, or has other items, on one of them."
    )
    return Match(ITEMS_IN_ANOTHER_ORDER, said, at_fork(case, fork))


def _calls_its_items(source: str, loop: str) -> bool:
    """Whether a line calls what a loop around it, or in it, goes through."""
    target = loop.removeprefix("for ").partition(" in ")[0] if loop else ""
    return any(re.search(rf"\b{name}\b(?:\.\w+)*\(", source) for name in _NAME.findall(target))


def _by_item(case: Case, fork: Fork) -> Match | None:
    """The two sides are in two branches of a condition on the items of a dictionary that both go through."""
    inside, other = fork.sides
    if inside.at is None or other.at is None or fork.block is None or not fork.opposite:
        return None
    loop = shared_loop(inside.at, other.at)
    target, _, over = loop.text.removeprefix("for ").partition(" in ") if loop is not None else ("", "", "")
    by_item = any(re.search(rf"\b{name}\b", fork.block.text) for name in _NAME.findall(target))
    if loop is None or not over.endswith((".items():", ".keys():")) or not by_item:
        return None
    said = (
        f"Ranks {inside.rank} and {other.rank} are in the two branches of `{fork.block.text}`, in `{loop.text}`: it is in "
        f"another order, or has other items, on one of them."
    )
    return Match(ITEMS_IN_ANOTHER_ORDER, said, at_fork(case, fork))


def in_each_branch(fork: Fork) -> bool:
    """Whether each side is in another branch of one condition, at a call there that is the program's last, and under no further
    condition: what a function calls further down is none of the condition's, and what ``if rank == 0:`` is around in one
    branch is left out by the others."""
    sides = ((fork.mine, fork.theirs), (fork.theirs, fork.mine))
    return fork.opposite and all(
        next((f for f in side.path if is_program(f)), None) == side.at and not _is_under_more(side, other)
        for side, other in sides
    )


def _is_under_more(side: Side, other: Side) -> bool:
    """Whether a side is under a condition of its own that the other one is in no branch of."""
    there = {b.line for b in other.at.blocks} if other.at is not None else set()
    return any(b.kind in CONDITIONS and b.line not in there for b in own_blocks(side, other))


def mismatch(case: Case) -> Match | None:
    """Different operations met, and that is all that can be said."""
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
        went = (
            " They went through as a wrong pair, and every operation since is out of step."
            if diverged_at.silent
            else ""
        )
        said = f"At number {diverged_at.seq} of {diverged_at.group.label} the ranks called different operations.{went}"
    else:
        said = "The ranks wait for each other in different operations."
    return Match(MISMATCH if wrong_pair else MISMATCH_IN_A_CYCLE, said, evidence)


def _in_store(case: Case) -> bool:
    """Whether one of the culprits waits for a key of a store: that is no operation of all ranks."""
    waits = (case.views[r].wait for r in (*case.blame.culprits, *case.blame.waiting) if r in case.views)
    return any(w is not None and w.kind == "store" for w in waits)
