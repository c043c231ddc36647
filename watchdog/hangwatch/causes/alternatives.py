"""What is confused with what: causes that leave nearly the same picture, shown as "Also consistent with". One table. Pure.

A skipped iteration, a condition that holds on some ranks, data that ended earlier; a rank that left in good order and
one that had less data; a thread that is awaited and one that has failed: if nothing that was seen decides between them,
the reader of the incident should know of both. A function of the table returns the sentence that says what would have
happened, or None if it does not fit the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.iterations import batch_loop
from hangwatch.analysis.places import where
from hangwatch.analysis.ranks.shutdown import exit_of
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import at_process, at_stack
from hangwatch.causes.match import Match
from hangwatch.causes.rules.rank.straggling import wait_at_barrier
from hangwatch.causes.rules.rank.stuck import is_outside
from hangwatch.causes.rules.rank.threads import polls, working_threads

#: Returns what would have happened to the first seen culprit if the alternative were the cause; None if it does not fit.
Alternative = Callable[[Case, RankView], str | None]


def alternatives(case: Case, best: Match) -> list[Match]:
    """Return what the surest match may be mistaken for, in the order of the table; nothing beside one that is certain."""
    if best.level == "certain" or not case.seen_culprits:
        return []
    rank, view = case.seen_culprits[0]
    evidence = (*at_stack(case, rank), *at_process(case, rank))
    found = ((cause, would(case, view)) for cause, would in TABLE.get(best.cause, {}).items())
    return [Match(cause, "possible", said, evidence) for cause, said in found if said is not None]


def _data_ended(case: Case, view: RankView) -> str | None:
    """Return that a rank had less data, if it has left and another is in a loop over batches; else None."""
    for rank in case.blame.waiting:
        loop = batch_loop(case.views[rank].frames)
        if loop is not None:
            return (
                f"Perhaps rank {view.rank} had fewer iterations of `{loop[1].text}`; rank {rank} is still in that loop."
            )
    return None


def _left_by_itself(case: Case, view: RankView) -> str:
    return (
        _data_ended(case, view) or f"Perhaps rank {view.rank} left because of a condition that differs between ranks."
    )


def _raised(_: Case, view: RankView) -> str | None:
    end = exit_of(view)
    failed = end is not None and end.signal is None and end.code not in {0, None}
    if view.gone and not failed:
        return None
    return f"Perhaps an exception ended rank {view.rank}; no traceback was found."


def _works_alone(case: Case, view: RankView) -> str | None:
    alone = len(case.blame.culprits) == 1
    return f"Perhaps rank {view.rank} does long work that only one rank has to do." if alone else None


def _awaited_at_a_barrier(case: Case, view: RankView) -> str | None:
    return _works_alone(case, view) if wait_at_barrier(case) else None


def _computes(_: Case, view: RankView) -> str:
    return f"Perhaps rank {view.rank} is in a loop or a call that never ends."


def _for_a_thread(_: Case, view: RankView) -> str:
    return f"Perhaps another thread of rank {view.rank}, on which the main thread depends, has ended or is stuck."


def _thread_failed(_: Case, view: RankView) -> str | None:
    if working_threads(view):
        return None
    return f"Perhaps an exception that nobody reported ended the thread that rank {view.rank} waits for."


def _for_a_lock(_: Case, view: RankView) -> str:
    return f"Perhaps the thread that rank {view.rank} waits for needs something that the main thread holds."


def _returned_early(_: Case, view: RankView) -> str:
    return (
        f"Perhaps rank {view.rank} was called and returned without the collective, because of a "
        "condition or a `return`."
    )


def _left_out(_: Case, view: RankView) -> str | None:
    """Return that a rank skipped a collective, if it is further on in a function that has called one before; else None."""
    flight = view.capture.flight
    last = next((o for o in reversed(flight.operations) if o.frames), None) if flight is not None else None
    if last is None:
        return None
    lines = {(f.file, f.function): f.line for f in view.frames}
    site = next((f for f in last.frames or () if 0 < f.line < lines.get((f.file, f.function), 0)), None)
    if site is None:
        return None
    return f"Perhaps rank {view.rank} skipped the collective in {where(site)}, which it called in earlier iterations."


def _child_outside(_: Case, view: RankView) -> str | None:
    samples = view.capture.processes[-1:]
    held = next((c for s in samples for c in s.children if c.state == "D" or is_outside(c.wait_channel or "")), None)
    if held is None:
        return None
    return (
        f"Perhaps the child {held.pid} of rank {view.rank} waits for a file, a pipe or a connection "
        f"({held.wait_channel})."
    )


def _looks_again(_: Case, view: RankView) -> str | None:
    frame = polls(view)
    if frame is None:
        return None
    return f"Perhaps rank {view.rank} polls for something that never comes, in {where(frame)}."


#: The alternatives of each first cause, the likelier first.
TABLE: Mapping[str, Mapping[str, Alternative]] = {
    "early-exit": {"ranks-diverged": _left_by_itself, "rank-raised": _raised},
    "rank-died": {"rank-raised": _raised},
    "busy-loop": {"rank0-work": _works_alone},
    "rank0-work": {"busy-loop": _computes},
    "straggler": {"busy-loop": _computes, "rank0-work": _works_alone},
    "gil-held": {"busy-loop": _computes},
    "dataloader-stall": {"blocked-io": _child_outside},
    "blocked-io": {"rank0-work": _awaited_at_a_barrier},
    "child-stall": {"blocked-io": _child_outside, "rank0-work": _awaited_at_a_barrier},
    "lock-deadlock": {"thread-stall": _for_a_thread},
    "thread-stall": {
        "rank-raised": _thread_failed,
        "ranks-diverged": _left_out,
        "lock-deadlock": _for_a_lock,
    },
    "waits-for-request": {"ranks-diverged": _returned_early},
    "unknown": {"blocked-io": _looks_again, "busy-loop": _looks_again},
}
