"""The ranks took different ways through the program: by a condition, an early exit, a loop, or a caught exception.

One cause for all of these. What one rank skipped, the others did: which of the two was meant cannot be seen from outside. The
match says what parted them (``how``) as far as the program's text shows it, and the remedies are ordered by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.call_sites import departing, early_visit
from hangwatch.analysis.divergence.loop import Loop
from hangwatch.analysis.divergence.relate import Fork, Side, catches, depends_only_on_loop_variable, own_blocks
from hangwatch.analysis.places import bare, called_by_user, calls, is_program, package_of
from hangwatch.causes.evidence import at_fork, branch_of, named, tell_values
from hangwatch.causes.match import Match
from hangwatch.causes.rules.diverged.groups import in_point_to_point
from hangwatch.model.incident import How
from hangwatch.model.stacks import Block, Frame
from hangwatch.program.lines import is_called_in_part

#: What a library does for a rank where only its own lines are on the stack: a part of a file's path, functions in it, and words.
#: The user's line that has asked for it is on no stack any more.
_TERMS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    # lightning 2.6: ``_ResultMetric.compute``
    (
        "/connectors/logger_connector/result.py",
        ("compute",),
        "averages a value that it has logged with `sync_dist=True`",
    ),
    # torchmetrics 1.9: ``Metric.sync``
    ("torchmetrics/metric.py", ("sync",), "gathers the state of a metric from all ranks"),
    # accelerate 1.15: ``DataLoaderDispatcher``
    ("accelerate/data_loader.py", ("_fetch_batches",), "takes its next batch from a loader that reads for all ranks"),
    # transformers 5.23: ``Trainer.evaluation_loop``
    ("transformers/trainer.py", ("evaluation_loop",), "evaluates"),
)


@dataclass(frozen=True)
class _Parting:
    """What parted two ranks: ``says`` in sentences, ``left``: the rank that left the others' way, None if either may have."""

    how: How | None
    says: str
    left: int | None


def ranks_diverged(case: Case) -> Match | None:
    """Return a match if the call paths of two ranks part in a function of the program."""
    fork = case.fork
    if fork is None or fork.relation == "unknown" or _is_meant_to_differ(case, fork):
        return None
    match fork.relation, fork.block:
        case "branch", Block() as block:
            parting = _by_a_branch(case, fork, block)
        case "skip", Block() as block:
            parting = _by_a_guard(fork, block)
        case "loop", Block() as block:
            parting = _by_a_loop(case, fork, block)
        case _:
            parting = _in_straight_code(case, fork)
    says = (
        parting.says + tell_values(case, fork) + "".join(_say_term(s.rank, s.path) for s in (fork.culprit, fork.other))
    )
    evidence = at_fork(case, fork)
    return Match("ranks-diverged", "likely", says, evidence, parting.left, parting.how) if evidence else None


def _is_meant_to_differ(case: Case, fork: Fork) -> bool:
    """True if the ranks have parts of their own: a key of a store to set or get, or in a branch a send or a receive."""
    sides = {side.rank: case.views[side.rank] for side in (fork.culprit, fork.other) if side.rank in case.views}
    at_store = any(view.wait is not None and view.wait.kind == "store" for view in sides.values())
    if fork.relation != "branch" or fork.only is None:
        return at_store and fork.block is None
    return at_store or (fork.only in sides and in_point_to_point(sides[fork.only]))


def _by_a_branch(case: Case, fork: Fork, block: Block) -> _Parting:
    under, outside = fork.sides
    ranked = ", which depends on the rank" if fork.ranked else ""
    if depends_only_on_loop_variable(block, under.path):
        says = (
            f"Rank {under.rank} is under {named(block)}, which depends on the iteration only; rank {outside.rank} is "
            "not. One of them may have skipped something earlier."
        )
        return _Parting("guard", says, None)
    if block.kind == "guard":
        left = "did not" if fork.sure else "may have left there"
        says = f"Rank {under.rank} passed `{block.text}`{ranked}; rank {outside.rank} {left}."
        return _Parting("guard", says, departing(case, fork))
    says = f"Rank {under.rank} takes {branch_of(block)}{ranked}; rank {outside.rank} does not."
    return _Parting("condition", says, departing(case, fork))


def _by_a_guard(fork: Fork, block: Block) -> _Parting:
    past, jumped = fork.sides
    says = (
        f"Rank {past.rank} passed `{block.text}` in this iteration; rank {jumped.rank} did not: it "
        "skipped the rest of an iteration and is ahead."
    )
    return _Parting("guard", says, None if fork.ranked else jumped.rank)


def _by_a_loop(case: Case, fork: Fork, block: Block) -> _Parting:
    inside, past = fork.sides
    loop = case.loop
    package = next((package_of(f) for f in inside.path if block in f.blocks), None)
    named_loop = f"the loop `{block.text}`" + (f" of {package}" if package is not None else "")
    if loop is not None and loop.visited is False and package is not None:
        return _by_a_library(case, fork, named_loop)
    how, more = _why_left(loop) if loop is not None else ("loop", "")
    notes = [f"it can be left by {' or '.join(f'`{one}`' for one in block.exits)}"] if block.exits else []
    if loop is not None and package is None and not more:
        notes += [f"it goes on after an error: `{b.text}` in line {b.line}" for b in loop.around if catches(b)]
    noted = f" ({'; '.join(notes)})" if how == "loop" and notes else ""
    says = f"Rank {past.rank} has left {named_loop}{noted}; rank {inside.rank} is still in it."
    if loop is None:
        return _Parting("loop", says, None)
    # A rank that was in the loop with the others and is past it has left. If the other is rounds ahead, that one came back.
    left = past.rank if fork.sure and loop.visited and not (loop.ahead or loop.fixed) else None
    return _Parting(how, says + more, left)


def _by_a_library(case: Case, fork: Fork, named_loop: str) -> _Parting:
    """Return why two sides diverged, if one is in a library's loop and the other has called nothing there.

    That loop is no reason. A guard or a condition of the program above it may be.
    """
    inside, past = fork.sides
    own = next((b for b in reversed(own_blocks(inside, past)) if b.kind in {"guard", "if", "else"}), None)
    if own is not None:
        return replace(_by_a_branch(case, fork, own), left=None)
    says = f"Rank {inside.rank} is in {named_loop}, in which rank {past.rank} has called nothing."
    return _Parting("condition", says, None)


def _why_left(loop: Loop) -> tuple[How, str]:
    """Return how a rank came to leave a loop before another, as far as its iterations are counted."""
    count, way = loop.iteration_count, loop.left_out
    if count is not None and count.fewer > 0:
        fewer = f"{count.fewer} fewer iteration{'s' * (count.fewer > 1)}"
        return "loop", f" It had {fewer} (counted by `{count.counter}`)."
    if way is not None:
        return "guard", f" It may have skipped an iteration by `{way.text}`."
    if count is not None:
        return "guard", f" It had as many iterations (counted by `{count.counter}`), so it skipped a part."
    return "loop", ""


def _in_straight_code(case: Case, fork: Fork) -> _Parting:
    """Return what parted two sides between which nothing but the order of lines lies."""
    partly = _evaluated_in_part(fork)
    if partly is not None:
        side, line = partly
        says = f"Only rank {side.rank} is in `{line.source}`, which calls a collective or not, depending on its values."
        return _Parting("condition", says, departing(case, replace(fork, block=None, only=side.rank)))
    for side, other in fork.both_ways:
        early = early_visit(case, side.rank, other.rank)
        if early is not None:
            caught = any(catches(block) for block in own_blocks(other, side))
            lead = f" by {early.by} operation{'s' * (early.by > 1)}" if early.by else ""
            before = "once" if early.visits == 1 else f"{early.visits} times"
            says = (
                f"Rank {side.rank} reached {early.place} too early{lead}: {before} before, both sides "
                "reached it at the same sequence number."
            )
            return _Parting("exception" if caught else "guard", says, side.rank)
    caught = any(catches(block) for block in own_blocks(fork.other, fork.culprit))
    says = f"Rank {fork.culprit.rank} and rank {fork.other.rank} are at different operations of the same code."
    return _Parting("exception" if caught else None, says, None)


def _evaluated_in_part(fork: Fork) -> tuple[Side, Frame] | None:
    """Return the side in a part of an expression that may be left out (``and``, ``or``, ``if .. else``), and its line."""
    for side, other in reversed(fork.both_ways):
        for callee, frame in pairwise(side.tail):
            partly = is_program(frame) and is_called_in_part(frame.source or "", bare(callee))
            if partly and not any((f.file, f.line) == (frame.file, frame.line) for f in other.path):
                return side, frame
    return None


def _say_term(rank: int, path: Sequence[Frame]) -> str:
    """Return a sentence on what a library does for a rank; empty if no known one does anything below the user's line."""
    below = called_by_user(path)
    does = next((words for part, functions, words in _TERMS if calls(below, part, *functions) is not None), "")
    return f" Rank {rank} {does}." if does else ""
