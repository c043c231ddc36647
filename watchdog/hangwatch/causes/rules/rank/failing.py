"""A rank that has failed and is still there: an exception ended one of its threads, or is being handled where it stands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.frames import call_site, where
from hangwatch.analysis.divergence.iterations import count_iterations
from hangwatch.analysis.divergence.relate import only_by_iteration
from hangwatch.analysis.places import bare, calls
from hangwatch.analysis.ranks.shutdown import shutdown_frame
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.stacks.waits import in_torch_distributed
from hangwatch.causes.evidence import at_fork, at_process, at_stack, standing
from hangwatch.causes.rules.rank.threads import polls, waits_for_thread, working_threads
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.incident import Evidence
from hangwatch.model.stacks import Block, Frame

#: Why the thread does not answer.
IN_A_THREAD = Signature("rank-raised", "ended-a-thread", "strong", beats=("thread-stall",))
IN_A_THREAD_AMONG_OTHERS = Signature("rank-raised", "ended-one-of-several-threads", "likely")
#: Why it is not there.
ENDING = Signature("rank-raised", "ending", "certain", beats=("init-missing-rank",))
#: The status distinguishes a failure from an end in good order.
ENDING_WITH_STATUS = Signature("rank-raised", "ending-with-status", "strong", beats=("early-exit",))
#: Why it is not there.
LEAVING = Signature("rank-raised", "leaving-a-with", "certain", beats=("init-missing-rank",))
LEAVING_BY_TYPE = Signature("rank-raised", "leaving-a-with-by-type", "strong")
#: What did not answer in time is what it waits for still.
LEAVING_AFTER_TIMEOUT = Signature("rank-raised", "leaving-a-with-after-a-timeout", "possible")
#: Why it is not there.
HANDLING_ANYTHING = Signature("rank-raised", "handling-any-exception", "certain", beats=("init-missing-rank",))
HANDLING = Signature("rank-raised", "handling", "likely")
HANDLING_ONE_KIND = Signature("rank-raised", "handling-one-kind", "likely")
RETRYING = Signature("rank-raised", "handling-in-a-retry-loop", "likely")
#: Batches that run out end a loop at its end only.
OUT_OF_A_LOOP = Signature(
    "rank-raised", "out-of-a-loop-midway", "strong", beats=("uneven-inputs", "skipped-collective")
)

_LOOPS = frozenset({"for", "while"})
_RANGE = re.compile(r" in range\((?:\d+, )?(?P<end>\d+)\):$")
_EXITS = frozenset({"__exit__", "__aexit__"})
_BROAD = re.compile(r"except\s*(?::|.*\b(?:Base)?Exception\b)")
#: What the second argument of ``__exit__`` is called: None unless an exception is on its way.
_ON_ITS_WAY = ("exc_val", "exc_value", "exc", "value", "exception")


def failed_in_thread(case: Case) -> Match | None:
    """An exception ended one of the rank's threads, and its main thread waits for a thread of its own."""
    for rank, view in standing(case):
        error = view.capture.thread_error
        frame = (waits_for_thread(view) or polls(view)) if error else None
        if frame is None:
            continue
        still = working_threads(view)
        if any(in_torch_distributed(f) for t in still for f in t.frames[:8]):
            continue  # it waits for other ranks, through that thread
        evidence = (*_quoted(rank, error), *at_stack(case, rank, frame), *at_process(case, rank))
        said = (
            f"An exception ended a thread of rank {rank} ({error[-1]}); its main thread waits for a thread of its own, "
            f"{'perhaps for that one' if still else 'and no other one is at work'}."
        )
        return Match(IN_A_THREAD_AMONG_OTHERS if still else IN_A_THREAD, said, evidence)
    return None


def failed_and_ending(case: Case) -> Match | None:
    """The main thread is at its end, with an exception on its way or a status that says so."""
    for rank in case.blame.culprits:
        view = case.views.get(rank)
        last = shutdown_frame(view.frames) if view is not None and not view.gone else None
        if view is None or last is None:
            continue
        error = view.capture.handled_error
        status = _status(view.frames)
        if not error and status is None:
            continue
        failed = f"with {error[-1]}" if error else f"(it is to exit with status {status})"
        evidence = (*_quoted(rank, error), Evidence(rank, "stack", where(last)))
        if status is not None:
            evidence += (Evidence(rank, "stack", f"multiprocessing is about to end it with status {status}"),)
        said = f"Rank {rank} failed {failed}, and its process is still there: its main thread is in the interpreter's shutdown."
        return Match(ENDING if error else ENDING_WITH_STATUS, said, (*evidence, *at_process(case, rank)))
    return None


def _is_thread_late(error: Sequence[str]) -> bool:
    """Whether an exception says that a thread has not answered in time."""
    return bool(error) and error[-1].startswith("TimeoutError") and any("concurrent/futures/" in line for line in error)


def _status(frames: Sequence[Frame]) -> int | None:
    """The status other than 0 with which multiprocessing is about to end the process; None where it is 0 or not known."""
    frame = calls(frames, "multiprocessing/process.py", "_bootstrap")
    described = (frame.locals or {}).get("exitcode", "") if frame is not None else ""
    return int(described[4:]) or None if re.fullmatch(r"int=-?\d+", described) else None


def failed_and_handling(case: Case) -> Match | None:
    """The main thread is stuck and is handling an exception that the ranks which wait have not met."""
    for rank in case.blame.culprits:
        view = case.views.get(rank)
        if view is None or view.gone or (view.motion.state != "stuck" and view.wait is None):
            continue  # it is at work; one that waits for others may wake now and then
        error = view.capture.handled_error
        leaving = next((f for f in view.frames if bare(f) in _EXITS), None)
        kind = _on_its_way(leaving) if leaving is not None else None
        if not error and kind is None:
            continue
        if error and any(_same_failure(case.views[r], error) for r in case.blame.waiting if r in case.views):
            continue  # all of the program runs in a handler, say that of an import that failed
        handler = _handler(view.frames)
        row = HANDLING if leaving is None else LEAVING if error else LEAVING_BY_TYPE
        if leaving is not None and _is_thread_late(error) and waits_for_thread(view) is not None:
            row = LEAVING_AFTER_TIMEOUT
        evidence = (*_quoted(rank, error), *at_stack(case, rank, leaving), *at_process(case, rank))
        if handler is not None and leaving is None:
            frame, block = handler
            row = (
                RETRYING
                if _tries_again(frame, block)
                else HANDLING_ANYTHING
                if _for_anything(block)
                else HANDLING_ONE_KIND
            )
            evidence += (Evidence(rank, "stack", f"under `{block.text}` (line {block.line}): {where(frame)}"),)
        failed = f"with {error[-1]}" if error else f"({kind})"
        said = f"Rank {rank} failed {failed}, and is stuck where it handles that."
        if leaving is not None:
            said = f"Rank {rank} failed {failed}, and is stuck at the end of a `with` that the exception is leaving."
        return Match(row, said, evidence)
    return None


def thrown_out(case: Case) -> Match | None:
    """A rank has left a loop of a fixed number of iterations, long before the last, by no ``break`` and no ``return``."""
    fork, loop = case.fork, case.loop
    if fork is None or fork.block is None or loop is None or not loop.visited:
        return None
    inside, past = fork.sides
    frame = next((f for f in inside.path if fork.block in f.blocks), None)
    fixed, counted = _RANGE.search(fork.block.text), fork.block.iterations
    now = count_iterations(frame, fork.block) if frame is not None else None
    if now is None or fixed is None or counted is None or counted.breaks or not only_by_iteration(inside, past):
        return None
    left = count_iterations(loop.past_frame, fork.block) if loop.past_frame is not None else None
    last = int(fixed["end"]) - 1
    if now >= last or (left is not None and left >= last):
        return None
    site = call_site(inside.path)
    done = sum(o.completed and call_site(o.frames or ()) == site for o in case.history.of(past.rank))
    if now <= 0 and done and done % (last + 1) == 0:
        return None  # it has been through whole rounds of the loop alone: the other begins a new one
    said = (
        f"Rank {past.rank} has left the loop `{fork.block.text}`, in whose iteration {now} rank {inside.rank} is: nothing leads "
        f"out of it there but an exception, which was caught further up."
    )
    return Match(OUT_OF_A_LOOP, said, at_fork(case, fork))


def _on_its_way(leaving: Frame) -> str | None:
    """The type of the exception that ``__exit__`` was given; None where it was given none, or its arguments are unread."""
    given = ((leaving.locals or {}).get(name, "None") for name in _ON_ITS_WAY)
    return next((kind for kind in given if kind.isidentifier() and kind != "None"), None)


def _quoted(rank: int, lines: Sequence[str]) -> tuple[Evidence, ...]:
    return tuple(Evidence(rank, "exception", line) for line in lines)


def _same_failure(view: RankView, error: Sequence[str]) -> bool:
    """Whether the rank is handling the same; it may be of another path or number, but from the same place."""
    return view.capture.handled_error[:1] == tuple(error[:1])


def _handler(frames: Sequence[Frame]) -> tuple[Frame, Block] | None:
    """The deepest place on the stack that is in an ``except`` or a ``finally``, and which block that is."""
    for frame in frames:
        block = next((b for b in reversed(frame.blocks) if b.kind in {"except", "finally"}), None)
        if block is not None:
            return frame, block
    return None


def _for_anything(block: Block) -> bool:
    """Whether it handles whatever may come. A handler of one kind may be the ordinary way: of a key that is in no cache yet."""
    return block.kind == "finally" or bool(_BROAD.match(block.text))


def _tries_again(frame: Frame, block: Block) -> bool:
    """Whether the handler is in a loop, which may try once more: the exception need not be the end."""
    around = frame.blocks[: frame.blocks.index(block)]
    return block.kind == "except" and any(b.kind in _LOOPS for b in around)
