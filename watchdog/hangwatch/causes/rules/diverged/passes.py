"""Backward passes that are counted, where hosts run ahead of their devices and all are found behind the loop by now.

What the engine of a backward pass calls has no call site (DDP's reductions). But where one rank's operation comes from a line
to which the other comes a number of such operations later, that one has had so many backward passes more. So where it is still
on its way there: past its loop, it waits for its device.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.find import side_path
from hangwatch.analysis.divergence.frames import call_site, is_program, same_function
from hangwatch.analysis.divergence.iterations import LOOPS, iterations_ahead
from hangwatch.analysis.operations.signatures import signature
from hangwatch.analysis.ranks.threads import is_engines
from hangwatch.causes.evidence import at_recorder
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.collectives import Operation
from hangwatch.model.stacks import Frame
from hangwatch.model.text import format_ranks, short_path

#: One less on one side, and all others had as many: batches are even as a rule.
ONE_PASS_LESS = Signature("skipped-collective", "one-backward-pass-less", "likely")
ONE_PASS_LESS_OR_SKIPPED = Signature("uneven-inputs", "one-backward-pass-less", "possible")
#: Several less, or another number on each rank: no single step makes that.
PASSES_LESS = Signature("uneven-inputs", "backward-passes-less", "likely")
PASSES_LESS_OR_SKIPPED = Signature("skipped-collective", "backward-passes-less", "possible")
#: It called it after each pass before, and is in the next pass now.
LEFT_OUT_BETWEEN = Signature("skipped-collective", "between-backward-passes", "strong")
#: So many operations on, the line is looked for.
_REACH = 512


@dataclass(frozen=True)
class _Lead:
    """The ranks that were at a line first, and by how many backward passes each of the others comes there later."""

    first: tuple[int, ...]
    place: tuple[str, int]
    passes: dict[int, int]

    @property
    def one_step(self) -> bool:
        """Whether one skipped step explains it: one pass, of all others alike, which are not fewer."""
        return set(self.passes.values()) == {1} and len(self.first) <= len(self.passes)


def left_out_a_pass(case: Case) -> Match | None:
    """One side has left out the backward pass of a step."""
    lead = _find_lead(case)
    if lead is None:
        return None
    return _match(case, lead, ONE_PASS_LESS if lead.one_step else PASSES_LESS_OR_SKIPPED)


def had_fewer_passes(case: Case) -> Match | None:
    """One side has had fewer batches."""
    lead = _find_lead(case)
    if lead is None:
        return None
    return _match(case, lead, ONE_PASS_LESS_OR_SKIPPED if lead.one_step else PASSES_LESS)


def left_out_between_passes(case: Case) -> Match | None:
    """One side is in the next backward pass, without what it called between two of them before."""
    here, sites = _at_the_divergence(case)
    ahead = [r for r, o in here.items() if r in case.views and is_engines(case.views[r].taken, o)]
    behind = [r for r in here if r not in ahead]
    place = sites[behind[0]] if behind else None
    if not ahead or place is None or any(sites[rank] != place for rank in behind):
        return None
    if not all(_came_between_passes(case, rank, here[rank], place) for rank in ahead):
        return None
    file, line = place
    said = (
        f"Rank {ahead[0]} has left out {short_path(file)}:{line}, to which it came after each backward pass before, as rank "
        f"{behind[0]} does now, and is in the next pass."
    )
    return Match(LEFT_OUT_BETWEEN, said, at_recorder(case, (ahead[0], behind[0])))


def _came_between_passes(case: Case, rank: int, now: Operation, place: tuple[str, int]) -> bool:
    """Whether a rank, after such an operation as its last one, came to a place the last time, and then to such a one as now."""
    key, taken = now.group.key, case.views[rank].taken
    earlier = [case.history.at(key, seq).get(rank) for seq in range(max(1, now.seq - _REACH), now.seq)]
    known = [o for o in earlier if o is not None]
    if len(known) < len(earlier) or not known or not is_engines(taken, known[-1]):
        return False
    ended = signature(known[-1])
    last = next((i for i in reversed(range(len(known) - 1)) if signature(known[i]) == ended), None)
    if last is None or call_site(known[last + 1].frames or ()) != place:
        return False
    following = next((o for o in known[last + 1 :] if is_engines(taken, o)), None)
    return following is not None and signature(following) == signature(now)


def _match(case: Case, lead: _Lead, row: Signature) -> Match:
    file, line = lead.place
    counted = sorted(set(lead.passes.values()))
    many = f"{counted[0]}" if len(counted) == 1 else f"{counted[0]} to {counted[-1]}"
    said = (
        f"Ranks {format_ranks(lead.first)} came to {short_path(file)}:{line} {many} backward pass{'es' if many != '1' else ''} "
        f"earlier than ranks {format_ranks(lead.passes)}, which come there as well."
    )
    return Match(row, said, at_recorder(case, (lead.first[0], next(iter(lead.passes)))))


def _at_the_divergence(case: Case) -> tuple[dict[int, Operation], dict[int, tuple[str, int] | None]]:
    """The operations that do not match, by rank, and where the program called them; none where there are no such."""
    diverged_at = case.blame.diverged_at
    if diverged_at is None or not diverged_at.mismatch:
        return {}, {}
    here = dict(case.history.at(diverged_at.group.key, diverged_at.seq))
    return here, {rank: call_site(operation.frames or ()) for rank, operation in here.items()}


def _find_lead(case: Case) -> _Lead | None:
    here, sites = _at_the_divergence(case)
    first = tuple(sorted(rank for rank, site in sites.items() if site is not None))
    later = [rank for rank in here if rank not in first and rank in case.views]
    if not first or not later or len({sites[rank] for rank in first}) > 1:
        return None
    place = sites[first[0]]
    passes = {rank: _passes_until(case, rank, here[rank], first[0], place) for rank in sorted(later)}
    known = {rank: count for rank, count in passes.items() if count is not None}
    return _Lead(first, place, known) if place is not None and len(known) == len(passes) else None


def _passes_until(
    case: Case, rank: int, operation: Operation, leader: int, place: tuple[str, int] | None
) -> int | None:
    """How many backward passes a rank still has before it comes to a place; None where something else is in between."""
    key, taken = operation.group.key, case.views[rank].taken
    for seq in range(operation.seq, operation.seq + _REACH):
        now = case.history.at(key, seq).get(rank)
        there = call_site(now.frames or ()) == place if now is not None else _is_on_its_way(case, rank, leader)
        if there:
            size = _operations_of_a_pass(case, rank, operation)
            return (seq - operation.seq) // size if size and not (seq - operation.seq) % size else None
        if now is None or not is_engines(taken, now):
            return None
    return None


def _is_on_its_way(case: Case, rank: int, leader: int) -> bool:
    """Whether a rank stands earlier on the way to where another rank is, in the same iteration of the loops around both."""
    mine = [f for f in reversed(case.views[rank].frames) if is_program(f)]
    theirs = [f for f in reversed(side_path(case, leader)) if is_program(f)]
    for depth, (own, ahead) in enumerate(zip(mine, theirs, strict=False)):
        if not same_function(own, ahead) or ahead.source is None:
            return False
        if own.line != ahead.line:
            shared = {(b.kind, b.line) for b in ahead.blocks}
            loops = ((b.kind, b.line) for f in mine[depth:] for b in f.blocks if b.kind in LOOPS)
            return own.line < ahead.line and shared.issuperset(loops) and not _is_in_a_later_iteration(own, ahead)
    return False


def _is_in_a_later_iteration(own: Frame, other: Frame) -> bool:
    """Whether a rank has begun an iteration of the outermost loop around both, by its counter, that the other has not.

    At the line of a ``for`` it is not in the loop, and takes its next item.
    """
    loop = next((b for b in (*own.blocks, *other.blocks) if b.kind in LOOPS and b.iterations is not None), None)
    return loop is not None and (iterations_ahead(own, other, loop) or 0) > 0


def _operations_of_a_pass(case: Case, rank: int, operation: Operation) -> int | None:
    """After how many operations a backward pass begins again, by those before this one; None where they do not repeat."""
    before = _row_before(case, rank, operation, operation.seq)
    if before:
        return next((n for n in range(1, len(before) // 2 + 1) if before[:n] == before[n : 2 * n]), None)
    # Between two passes it calls something else: then the last one was a whole one.
    key, taken = operation.group.key, case.views[rank].taken
    seqs = range(operation.seq - 1, max(0, operation.seq - _REACH), -1)
    last = next((s for s in seqs if (o := case.history.at(key, s).get(rank)) is None or is_engines(taken, o)), None)
    row = _row_before(case, rank, operation, last + 1) if last is not None else []
    return len(row) if row and row[-1] == signature(operation) else None


def _row_before(case: Case, rank: int, operation: Operation, end: int) -> list[object]:
    """What a backward pass has called up to a number of the operation's group, the last first."""
    key, taken = operation.group.key, case.views[rank].taken
    before: list[object] = []
    for seq in range(end - 1, max(0, end - _REACH), -1):
        earlier = case.history.at(key, seq).get(rank)
        if earlier is None or not is_engines(taken, earlier):
            break
        before.append(signature(earlier))
    return before
