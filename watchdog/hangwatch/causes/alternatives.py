"""What is confused with what: causes that leave nearly the same picture, shown as "Also consistent with". One table. Pure.

A skipped iteration, a condition that holds on some ranks, data that ended earlier; a rank that left in good order and one that
had less data; a thread that is awaited and one that has failed: where nothing that was seen decides between them, the
reader of the incident is to know of both. Each is named with what would have happened, and only where the picture
allows it: a function of the table returns the sentence, or None where it does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.frames import where
from hangwatch.analysis.divergence.iterations import batch_loop
from hangwatch.analysis.divergence.relate import Fork, catches, condition_of, own_blocks
from hangwatch.analysis.places import bare, calls
from hangwatch.analysis.ranks.file_locks import find_lock_file
from hangwatch.analysis.ranks.shutdown import exit_of
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import at_fork, at_process, at_stack, named
from hangwatch.causes.rules.diverged.checkpoint import saving_frame
from hangwatch.causes.rules.diverged.groups import in_point_to_point
from hangwatch.causes.rules.diverged.sharded import chosen_modules
from hangwatch.causes.rules.rank.straggling import wait_at_barrier
from hangwatch.causes.rules.rank.stuck import is_outside
from hangwatch.causes.rules.rank.threads import polls, working_threads
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.incident import Evidence

_LOADING = "torch/utils/data/"


@dataclass(frozen=True)
class Alternative:
    """What another cause may be taken for: its id, and what would have happened, by the fork or by the first culprit seen."""

    cause: str
    of_fork: Callable[[Fork], str | None] | None = None
    of_rank: Callable[[Case, RankView], str | None] | None = None


def alternatives(case: Case, best: Match) -> list[Match]:
    """What the surest match may be taken for, in the order of the table."""
    row = best.signature
    if row.decides or (row.cause == "p2p-mismatch" and _still_in_point_to_point(case)):
        return []
    culprit = next((r for r in case.blame.culprits if r in case.views), None)
    found: list[Match] = []
    for number, other in enumerate(TABLE.get(row.cause, ())):
        said: str | None = None
        evidence: tuple[Evidence, ...] = ()
        if other.of_fork is not None and case.fork is not None:
            said, evidence = other.of_fork(case.fork), at_fork(case, case.fork)
        elif other.of_rank is not None and culprit is not None:
            said = other.of_rank(case, case.views[culprit])
            evidence = (*at_stack(case, culprit), *at_process(case, culprit))
        if said is not None and all(other.cause != match.signature.cause for match in found):
            found.append(Match(Signature(other.cause, f"beside-{row.cause}-{number}", "possible"), said, evidence))
    return found


def _still_in_point_to_point(case: Case) -> bool:
    """Whether a culprit is in a send or receive: then it has not gone on to something else."""
    return any(in_point_to_point(case.views[r]) for r in case.blame.culprits if r in case.views)


def _skipped(fork: Fork) -> str:
    return (
        f"It may be that rank {fork.mine.rank} or rank {fork.theirs.rank} skipped a collective earlier: by a caught exception, "
        "a `continue` or a `return`."
    )


def _by_a_condition(fork: Fork) -> str:
    block = condition_of(fork.mine, fork.theirs) or condition_of(fork.theirs, fork.mine)
    which = f", such as {named(block)} (line {block.line})," if block is not None else ""
    return (
        f"It may be that rank {fork.mine.rank} or rank {fork.theirs.rank} is where it is by a condition{which} that does not "
        "hold on every rank."
    )


def _for_saving(fork: Fork) -> str | None:
    sides = ((fork.mine, fork.theirs), (fork.theirs, fork.mine))
    found = next(
        ((s, o, f) for s, o in sides if (f := saving_frame(s.tail)) is not None and saving_frame(o.tail) is None), None
    )
    if found is None:
        return None
    side, other, frame = found
    return f"It may be that rank {side.rank} is saving, in {where(frame)}, and rank {other.rank} is not."


def _other_modules(fork: Fork) -> str | None:
    chosen = chosen_modules(fork.mine.path) or chosen_modules(fork.theirs.path)
    if chosen is None:
        return None
    frame, block = chosen
    return (
        f"It may be that rank {fork.mine.rank} or rank {fork.theirs.rank} has run other modules of the sharded model, by "
        f"`{block.text}` in {bare(frame)}."
    )


def _left_by_a_break(fork: Fork) -> str | None:
    counted = fork.block.iterations if fork.relation == "loop" and fork.block is not None else None
    if fork.block is None or counted is None or not counted.breaks:
        return None
    return (
        f"It may be that rank {fork.sides[1].rank} left the loop `{fork.block.text}` by a condition that does not hold on every "
        "rank."
    )


def _by_an_exception(fork: Fork) -> str | None:
    for side, other in ((fork.mine, fork.theirs), (fork.theirs, fork.mine)):
        block = next((b for b in own_blocks(other, side) if catches(b) or b.text == "try:"), None)
        if block is not None:
            return f"It may be that an exception led rank {side.rank} out of the `{block.text}` in line {block.line}."
    return None


def _fewer_batches(fork: Fork) -> str | None:
    loop = batch_loop(fork.mine.path) or batch_loop(fork.theirs.path)
    if loop is None:
        return None
    return f"It may be that rank {fork.mine.rank} or rank {fork.theirs.rank} had fewer iterations of `{loop[1].text}`."


def _data_ended(case: Case, view: RankView) -> str | None:
    """It has left: perhaps for want of data, if the others are in a loop over some."""
    for rank in case.blame.waiting:
        loop = batch_loop(case.views[rank].frames)
        if loop is not None:
            return f"It may be that rank {view.rank} had fewer iterations of `{loop[1].text}`, in which rank {rank} still is."
    return None


def _child_does_not_answer(_: Case, view: RankView) -> str | None:
    """It is at a pipe of which a child of its own alone has the other end."""
    child = view.sample.child_at_pipe if view.sample is not None else None
    return (
        f"It may be that {child.name} (process {child.pid}), its child, does not answer." if child is not None else None
    )


def _had_more(case: Case, view: RankView) -> str | None:
    loop = batch_loop(view.frames) if case.blame.shape == "left_over" else None
    return f"It may be that rank {view.rank} had more iterations of `{loop[1].text}`." if loop is not None else None


def _others_left(case: Case, _: RankView) -> str | None:
    return "It may be that the others ended too early." if case.blame.shape == "left_over" else None


def _left_by_itself(_: Case, view: RankView) -> str:
    return f"It may be that rank {view.rank} left by a condition that does not hold on every rank."


def _raised(_: Case, view: RankView) -> str | None:
    end = exit_of(view)
    failed = end is not None and end.signal is None and end.code not in {0, None}
    if view.gone and not failed:
        return None
    return f"It may be that an exception ended rank {view.rank}; its traceback was not found."


def _works_alone(case: Case, view: RankView) -> str | None:
    alone = len(case.blame.culprits) == 1
    return f"It may be that rank {view.rank} does long work that is meant for it alone." if alone else None


def _awaited_at_a_barrier(case: Case, view: RankView) -> str | None:
    return _works_alone(case, view) if wait_at_barrier(case) else None


def _computes(_: Case, view: RankView) -> str:
    return f"It may be that rank {view.rank} is in a loop, or in one call, that does not come to an end."


def _loads(_: Case, view: RankView) -> str | None:
    frame = calls(view.frames, _LOADING)
    if frame is None:
        return None
    return f"It may be that what is stuck is the loading of data, which has no workers here: {where(frame)}."


def _lock_of_a_file(_: Case, view: RankView) -> str | None:
    last = view.sample
    held = last is not None and (last.syscall == "flock" or last.lock_owner is not None)
    if not held and find_lock_file(view.frames) is None:
        return None
    return f"It may be that the lock rank {view.rank} waits for is held by a rank that waits for this one."


def _for_a_thread(_: Case, view: RankView) -> str:
    return f"It may be that a thread of rank {view.rank}'s own, which should let it go on, has ended or is stuck."


def _thread_failed(_: Case, view: RankView) -> str | None:
    if working_threads(view):
        return None
    return f"It may be that an exception has ended what rank {view.rank} waits for, and that it was not reported."


def _for_a_lock(_: Case, view: RankView) -> str:
    return f"It may be that what rank {view.rank} waits for waits for something that this rank holds."


def _returned_early(_: Case, view: RankView) -> str:
    return (
        f"It may be that rank {view.rank} has been called, and has returned without the collective: by a condition or a `return` "
        "in what it was told to do."
    )


def _left_out(_: Case, view: RankView) -> str | None:
    """It is further on in the very function in which it has called a collective before."""
    flight = view.capture.flight
    last = next((o for o in reversed(flight.operations) if o.frames), None) if flight is not None else None
    if last is None:
        return None
    lines = {(f.file, f.function): f.line for f in view.frames}
    site = next((f for f in last.frames or () if 0 < f.line < lines.get((f.file, f.function), 0)), None)
    if site is None:
        return None
    return f"It may be that rank {view.rank} has left out the collective in {where(site)}, which it called in iterations before."


def _child_outside(_: Case, view: RankView) -> str | None:
    samples = view.capture.processes[-1:]
    held = next((c for s in samples for c in s.children if c.state == "D" or is_outside(c.wait_channel or "")), None)
    if held is None:
        return None
    return f"It may be that its child {held.pid} waits for a file, a pipe or a connection ({held.wait_channel})."


def _thread_outside(_: Case, view: RankView) -> str | None:
    working = working_threads(view)
    if not working:
        return None
    return f"It may be that its thread, in {where(working[0].frames[0])}, waits for a file, a pipe or a connection."


def _looks_again(_: Case, view: RankView) -> str | None:
    frame = polls(view)
    if frame is None:
        return None
    return f"It may be that rank {view.rank} polls, in {where(frame)}, for something that never comes."


_SAVING = Alternative("checkpoint-on-some-ranks", of_fork=_for_saving)
_SHARDED = Alternative("sharded-forward-divergence", of_fork=_other_modules)
_SKIPPED = Alternative("skipped-collective", of_fork=_skipped)
_CONDITION = Alternative("rank-conditional-collective", of_fork=_by_a_condition)
_DATA = Alternative("uneven-inputs", of_fork=_fewer_batches)
_BREAK = Alternative("rank-conditional-collective", of_fork=_left_by_a_break)
_EXCEPTION = Alternative("rank-raised", of_fork=_by_an_exception)

#: By the cause that comes first: what it may be taken for, the likelier first.
TABLE: Mapping[str, tuple[Alternative, ...]] = {
    "uneven-inputs": (_SHARDED, _SAVING, _BREAK, _SKIPPED, _EXCEPTION, _CONDITION),
    "skipped-collective": (_SHARDED, _SAVING, _CONDITION, _DATA),
    "rank-conditional-collective": (
        _SHARDED,
        _SAVING,
        _SKIPPED,
        _DATA,
        Alternative("uneven-inputs", of_rank=_had_more),
        Alternative("early-exit", of_rank=_others_left),
    ),
    "sharded-forward-divergence": (_CONDITION, _SKIPPED),
    "generate-length-divergence": (_CONDITION, _SKIPPED),
    "collective-mismatch": (_CONDITION, _SKIPPED),
    "p2p-mismatch": (_DATA, _CONDITION),
    "early-exit": (
        Alternative("uneven-inputs", of_rank=_data_ended),
        Alternative("rank-conditional-collective", of_rank=_left_by_itself),
        Alternative("rank-raised", of_rank=_raised),
    ),
    "rank-died": (Alternative("rank-raised", of_rank=_raised),),
    "busy-loop": (
        Alternative("rank0-work", of_rank=_works_alone),
        Alternative("dataloader-stall", of_rank=_loads),
    ),
    "rank0-work": (Alternative("busy-loop", of_rank=_computes),),
    "straggler": (
        Alternative("busy-loop", of_rank=_computes),
        Alternative("rank0-work", of_rank=_works_alone),
    ),
    "gil-held": (Alternative("busy-loop", of_rank=_computes),),
    "dataloader-stall": (Alternative("blocked-io", of_rank=_child_outside),),
    "blocked-io": (
        Alternative("child-stall", of_rank=_child_does_not_answer),
        Alternative("lock-deadlock", of_rank=_lock_of_a_file),
        Alternative("dataloader-stall", of_rank=_loads),
        Alternative("rank0-work", of_rank=_awaited_at_a_barrier),
    ),
    "child-stall": (
        Alternative("blocked-io", of_rank=_child_outside),
        Alternative("rank0-work", of_rank=_awaited_at_a_barrier),
    ),
    "lock-deadlock": (Alternative("thread-stall", of_rank=_for_a_thread),),
    "thread-stall": (
        Alternative("rank-raised", of_rank=_thread_failed),
        Alternative("skipped-collective", of_rank=_left_out),
        Alternative("lock-deadlock", of_rank=_for_a_lock),
        Alternative("blocked-io", of_rank=_thread_outside),
    ),
    "waits-for-request": (Alternative("skipped-collective", of_rank=_returned_early),),
    "unknown": (
        Alternative("blocked-io", of_rank=_looks_again),
        Alternative("busy-loop", of_rank=_looks_again),
    ),
}
