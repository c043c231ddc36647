"""A rank that has failed and is still there: an exception ended one of its threads, or is being handled where it stands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import bare, calls, where
from hangwatch.analysis.ranks.shutdown import shutdown_frame
from hangwatch.analysis.stacks.waits import in_torch_distributed
from hangwatch.causes.evidence import at_process, at_stack, stuck_culprits
from hangwatch.causes.match import Level, Match
from hangwatch.causes.rules.rank.threads import polls, waits_for_thread, working_threads
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Block, Frame
from hangwatch.program.lines import header_of

_LOOPS = frozenset({"for", "while"})
_EXITS = frozenset({"__exit__", "__aexit__"})
#: Usual names of the second argument of ``__exit__``, which is None unless an exception is on its way.
_ON_ITS_WAY = ("exc_val", "exc_value", "exc", "value", "exception")


def failed_in_thread(case: Case) -> Match | None:
    """Return a match if an exception ended one of the rank's threads, and its main thread waits for a thread of its own."""
    for rank, view in stuck_culprits(case):
        error = view.capture.thread_error
        frame = (waits_for_thread(view) or polls(view)) if error else None
        if frame is None:
            continue
        still = working_threads(view)
        if any(in_torch_distributed(f) for t in still for f in t.frames[:8]):
            continue  # it waits for other ranks, through that thread
        evidence = (*_quoted(rank, error), *at_stack(case, rank, frame), *at_process(case, rank))
        said = (
            f"An exception ended a thread of rank {rank} ({error[-1]}). Its main thread waits for one "
            f"of its own threads, {'perhaps that one' if still else 'and none of them is at work'}."
        )
        return Match("rank-raised", "likely" if still else "strong", said, evidence)
    return None


def failed_and_ending(case: Case) -> Match | None:
    """Return a match if the main thread is at its end, with an exception on its way or a status that says so."""
    for rank, view in case.seen_culprits:
        last = shutdown_frame(view.frames) if not view.gone else None
        if last is None:
            continue
        error = view.capture.handled_error
        status = _status(view.frames)
        if not error and status is None:
            continue
        failed = f"with {error[-1]}" if error else f"(about to exit with status {status})"
        evidence = (*_quoted(rank, error), Evidence(rank, "stack", where(last)))
        if status is not None:
            evidence += (Evidence(rank, "stack", f"multiprocessing is about to end the process with status {status}"),)
        said = (
            f"Rank {rank} failed {failed}, but its process still exists: the main thread is in the "
            "interpreter's shutdown."
        )
        return Match("rank-raised", "certain" if error else "strong", said, (*evidence, *at_process(case, rank)))
    return None


def _status(frames: Sequence[Frame]) -> int | None:
    """Return the status with which multiprocessing is about to end the process; None if it is 0 or not known."""
    frame = calls(frames, "multiprocessing/process.py", "_bootstrap")
    described = (frame.locals or {}).get("exitcode", "") if frame is not None else ""
    return int(described[4:]) or None if re.fullmatch(r"int=-?\d+", described) else None


def failed_and_handling(case: Case) -> Match | None:
    """Return a match if the main thread is stuck and is handling an exception that the ranks which wait have not met."""
    for rank, view in case.seen_culprits:
        if view.gone or (view.motion.state != "stuck" and view.wait is None):
            continue  # it is at work; one that waits for others may wake now and then
        error = view.capture.handled_error
        leaving = next((f for f in view.frames if bare(f) in _EXITS), None)
        kind = _exception_on_exit(leaving) if leaving is not None else None
        if not error and kind is None:
            continue
        waiting = [case.views[r].capture for r in case.blame.waiting if r in case.views]
        # The same failure, from the same place, may name another path or number.
        if error and any(one.handled_error[:1] == error[:1] for one in waiting):
            continue  # the whole program runs in a handler, such as that of a failed import
        handler = _handler(view.frames)
        level: Level = "likely" if leaving is None else "certain" if error else "strong"
        evidence = (*_quoted(rank, error), *at_stack(case, rank, leaving), *at_process(case, rank))
        if handler is not None and leaving is None:
            frame, block = handler
            level = "certain" if _catches_anything(block) else "likely"
            evidence += (Evidence(rank, "stack", f"under `{block.text}` (line {block.line}): {where(frame)}"),)
        failed = f"with {error[-1]}" if error else f"({kind})"
        said = f"Rank {rank} failed {failed} and is stuck while it handles the exception."
        if leaving is not None:
            said = f"Rank {rank} failed {failed} and is stuck at the end of a `with` block that the exception leaves."
        alone = sum(bool(one.capture.handled_error) for _, one in case.seen_culprits) == 1
        return Match("rank-raised", level, said, evidence, rank if alone else None)
    return None


def _exception_on_exit(leaving: Frame) -> str | None:
    """Return the type of the exception that ``__exit__`` was given; None if it was given none, or its arguments are unread."""
    given = ((leaving.locals or {}).get(name, "None") for name in _ON_ITS_WAY)
    return next((kind for kind in given if kind.isidentifier() and kind != "None"), None)


def _quoted(rank: int, lines: Sequence[str]) -> tuple[Evidence, ...]:
    return tuple(Evidence(rank, "exception", line) for line in lines)


def _handler(frames: Sequence[Frame]) -> tuple[Frame, Block] | None:
    """Return the deepest frame in an ``except`` or a ``finally``, with that block; None if there is none."""
    for frame in frames:
        block = next((b for b in reversed(frame.blocks) if b.kind in {"except", "finally"}), None)
        if block is not None:
            return frame, block
    return None


def _catches_anything(block: Block) -> bool:
    """True if a handler takes whatever comes.

    One of a certain kind may be the ordinary way, as for a key missing in a cache.
    """
    header = header_of(block)
    return not header.said or not header.names.isdisjoint({"Exception", "BaseException"})
