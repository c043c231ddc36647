"""What else it may be where one rank is out of the common way by itself: causes that leave nearly the same picture.

A rank that has ended in good order may have had less data; one that computes may be doing honest work; whoever waits for a
thread may wait for one that has failed. Each is named beside the surest with what would have happened, where the picture
allows it, so that whoever reads the incident at night does not look in one place only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.frames import where
from hangwatch.analysis.divergence.iterations import batch_loop
from hangwatch.analysis.places import calls
from hangwatch.analysis.ranks.file_locks import find_lock_file
from hangwatch.analysis.ranks.shutdown import exit_of
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import at_process, at_stack
from hangwatch.causes.hypothesis import Hypothesis
from hangwatch.causes.knowledge import Knowledge
from hangwatch.causes.rules import children, diverged, lost, straggling, stuck, threads, unknown

_LOADING = "torch/utils/data/"


@dataclass(frozen=True)
class _Lookalike:
    """A cause that another may be taken for, how sure that makes us, and what would have happened (None: it does not fit)."""

    knowledge: Knowledge
    confidence: float
    say: Callable[[Case, RankView], str | None]


def lookalikes(case: Case, best: Hypothesis) -> list[Hypothesis]:
    """What the surest may be taken for, by the first culprit that was seen."""
    known = _LOOKALIKES.get(best.knowledge.id, ())
    rank = next((r for r in case.blame.culprits if r in case.views), None) if known else None
    if rank is None:
        return []
    evidence = (*at_stack(case, rank), *at_process(case, rank))
    told = ((other, other.say(case, case.views[rank])) for other in known)
    return [
        Hypothesis(o.knowledge, min(o.confidence, best.confidence - 0.01), said, evidence)
        for o, said in told
        if said is not None
    ]


def _data_ended(case: Case, view: RankView) -> str | None:
    """It has left: perhaps for want of data, if the others are in a loop over some."""
    for rank in case.blame.waiting:
        loop = batch_loop(case.views[rank].frames)
        if loop is not None:
            return (
                f"It may be that rank {view.rank} had fewer turns of `{loop[1].text}`, in which rank {rank} still is."
            )
    return None


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
    return _works_alone(case, view) if straggling.wait_at_barrier(case) else None


def _computes(_: Case, view: RankView) -> str:
    return f"It may be that rank {view.rank} is in a loop, or in one call, that does not come to an end."


def _loads(_: Case, view: RankView) -> str | None:
    frame = calls(view.frames, _LOADING)
    if frame is None:
        return None
    return f"It may be that what stands still is the loading of data, which has no workers here: {where(frame)}."


def _lock_of_a_file(_: Case, view: RankView) -> str | None:
    last = view.capture.processes[-1] if view.capture.processes else None
    held = last is not None and (last.syscall == "flock" or " held by " in (last.blocked_on or ""))
    if not held and find_lock_file(view.frames) is None:
        return None
    return f"It may be that the lock rank {view.rank} waits for is held by a rank that waits for this one."


def _for_a_thread(_: Case, view: RankView) -> str:
    return f"It may be that a thread of rank {view.rank}'s own, which should let it go on, has ended or stands still."


def _thread_failed(_: Case, view: RankView) -> str | None:
    if threads.working_threads(view):
        return None
    return f"It may be that an exception has ended what rank {view.rank} waits for, and that nobody has told of it."


def _for_a_lock(_: Case, view: RankView) -> str:
    return f"It may be that what rank {view.rank} waits for waits for something that this rank holds."


def _child_outside(_: Case, view: RankView) -> str | None:
    samples = view.capture.processes[-1:]
    held = next(
        (c for s in samples for c in s.children if c.state == "D" or stuck.is_outside(c.wait_channel or "")), None
    )
    if held is None:
        return None
    return f"It may be that its child {held.pid} waits for a file, a pipe or a connection ({held.wait_channel})."


def _thread_outside(_: Case, view: RankView) -> str | None:
    working = threads.working_threads(view)
    if not working:
        return None
    return f"It may be that its thread, in {where(working[0].frames[0])}, waits for a file, a pipe or a connection."


def _looks_again(_: Case, view: RankView) -> str | None:
    frame = threads.polls(view)
    if frame is None:
        return None
    return f"It may be that rank {view.rank} looks again and again, in {where(frame)}, for something that never comes."


_LOOKALIKES: dict[str, tuple[_Lookalike, ...]] = {
    lost.EARLY_EXIT.id: (
        _Lookalike(diverged.UNEVEN_INPUTS, 0.4, _data_ended),
        _Lookalike(diverged.RANK_CONDITIONAL, 0.35, _left_by_itself),
        _Lookalike(lost.RAISED, 0.3, _raised),
    ),
    lost.DIED.id: (_Lookalike(lost.RAISED, 0.4, _raised),),
    straggling.BUSY_LOOP.id: (
        _Lookalike(straggling.RANK0_WORK, 0.28, _works_alone),
        _Lookalike(stuck.DATALOADER, 0.25, _loads),
    ),
    straggling.RANK0_WORK.id: (_Lookalike(straggling.BUSY_LOOP, 0.28, _computes),),
    straggling.STRAGGLER.id: (
        _Lookalike(straggling.BUSY_LOOP, 0.28, _computes),
        _Lookalike(straggling.RANK0_WORK, 0.25, _works_alone),
    ),
    stuck.GIL.id: (_Lookalike(straggling.BUSY_LOOP, 0.4, _computes),),
    stuck.DATALOADER.id: (_Lookalike(stuck.BLOCKED_IO, 0.3, _child_outside),),
    stuck.BLOCKED_IO.id: (
        _Lookalike(threads.LOCKS, 0.4, _lock_of_a_file),
        _Lookalike(stuck.DATALOADER, 0.3, _loads),
        _Lookalike(straggling.RANK0_WORK, 0.25, _awaited_at_a_barrier),
    ),
    children.CHILD.id: (
        _Lookalike(stuck.BLOCKED_IO, 0.3, _child_outside),
        _Lookalike(straggling.RANK0_WORK, 0.25, _awaited_at_a_barrier),
    ),
    threads.LOCKS.id: (_Lookalike(threads.THREADS, 0.4, _for_a_thread),),
    threads.THREADS.id: (
        _Lookalike(lost.RAISED, 0.4, _thread_failed),
        _Lookalike(threads.LOCKS, 0.35, _for_a_lock),
        _Lookalike(stuck.BLOCKED_IO, 0.25, _thread_outside),
    ),
    unknown.UNKNOWN.id: (
        _Lookalike(stuck.BLOCKED_IO, 0.04, _looks_again),
        _Lookalike(straggling.BUSY_LOOP, 0.03, _looks_again),
    ),
}
