"""A rank that awaits what to do, while its group waits for it: nobody has called it, or it was called and left something out."""

from __future__ import annotations

from itertools import groupby, takewhile

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.frames import where
from hangwatch.analysis.divergence.iterations import LOOPS
from hangwatch.analysis.places import bare, user_frame, user_frames
from hangwatch.analysis.ranks.requests import find_awaiting, has_gone_on
from hangwatch.analysis.stacks.awaiting import Awaiting
from hangwatch.causes.evidence import at_frame, at_front, at_process, at_stack, at_tasks, looked_at
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.collectives import Operation
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import CallerProcess, ProcessSample

_GENERAL = ("blocked-io", "child-stall", "thread-stall", "init-missing-rank", "busy-loop", "straggler")
#: What it reads from works: the next call comes that way, and the others have had theirs.
CALLED_OTHERS = Signature("waits-for-request", "others-were-called", "certain", beats=_GENERAL)
#: Ray's own loop calls nothing but tasks.
NO_TASK = Signature("waits-for-request", "no-task", "certain", beats=_GENERAL)
#: A server that serves nobody is not blocked: it is free.
NO_CLIENT = Signature("waits-for-request", "no-client", "certain", beats=_GENERAL)
#: What it reads from works: who started it is at the other end.
NO_COMMAND_FROM_CALLER = Signature("waits-for-request", "no-command-from-its-caller", "certain", beats=_GENERAL)
#: The others may have other programs, so that theirs says nothing; the read is still that of the next command.
NO_COMMAND = Signature("waits-for-request", "no-command", "strong", beats=_GENERAL)

#: It was called: what it did right before is of the same call, which goes through several operations in a loop.
LEFT_OUT_OF_ITS_CALL = Signature(
    "skipped-collective", "left-out-of-its-call", "certain", beats=(*_GENERAL, "waits-for-request")
)

_WHERE = {
    "tasks": "in Ray's task loop, with no task",
    "server": "where its server waits for a client",
    "commands": "where it reads its next command",
}


def waits_for_request(case: Case) -> Match | None:
    """The main thread is where the program takes its next call."""
    for rank, view in looked_at(case):
        awaiting = find_awaiting(view)
        if awaiting is None or view.capture.task_error:
            continue  # what a failed task was to bring is no command
        called = [r for r in case.blame.waiting if r in case.views and has_gone_on(awaiting, case.views[r])]
        last = view.capture.processes[-1]
        caller = last.caller
        who = f" ({view.capture.identity.title})" if view.capture.identity.title else ""
        others = ", and the ranks that wait for it have had theirs" if called else ""
        place = f"{_WHERE[awaiting.place]}, in {bare(awaiting.frame)}"
        said = f"Rank {rank}{who} has nothing to do: its main thread is {place}{others}."
        evidence = (
            *at_tasks(case, rank),
            *at_stack(case, rank, awaiting.frame),
            *at_process(case, rank),
            *_at_caller(rank, caller),
        )
        return Match(_row(awaiting, last, called=bool(called)), f"{said} {_who_calls(caller)}", evidence)
    return None


def left_out_of_its_call(case: Case) -> Match | None:
    """The main thread is where the program takes its next call, and has an operation of the present one behind it."""
    for rank, view in looked_at(case):
        awaiting = find_awaiting(view)
        found = ((waiter, _of_this_call(case, rank, awaiting, waiter)) for waiter in case.blame.waiting if awaiting)
        waiter, last = next(((w, last) for w, last in found if last is not None), (None, None))
        if awaiting is None or waiter is None or last is None or view.capture.task_error:
            continue
        site = user_frame(last.frames or ())
        at = f", in {where(site)}" if site is not None else ""
        said = (
            f"Rank {rank} was called, and has left out number {last.seq + 1} of {last.group.label}: number {last.seq} is of the "
            f"same call{at}. Its main thread is back {_WHERE[awaiting.place]}, in {bare(awaiting.frame)}."
        )
        evidence = (*at_frame(rank, site, f"number {last.seq}"), *at_stack(case, rank, awaiting.frame))
        return Match(LEFT_OUT_OF_ITS_CALL, said, (*evidence, *at_front(case, rank), *at_stack(case, waiter)))
    return None


def _of_this_call(case: Case, rank: int, awaiting: Awaiting, waiter: int) -> Operation | None:
    """What a rank did last, where that is of the call in which ``waiter`` waits for it now; None where it is not, or not known.

    The waiter goes from one to the other by the same lines, with no other operation in between, and it did so before. And the
    rank was in a loop there, within what it is called for: one call takes it through several operations, and not each through
    one of its own.
    """
    front = case.views[waiter].frontier if waiter in case.views else None
    if front is None or front.p2p or rank not in front.group.ranks:
        return None
    mine = case.history.at(front.group.key, front.seq - 1).get(rank)
    if mine is None or not mine.frames or case.history.enqueued(rank, front.group.key) != mine.seq:
        return None
    inside = list(takewhile(lambda f: (f.file, bare(f)) != (awaiting.frame.file, bare(awaiting.frame)), mine.frames))
    loops = any(b.kind in LOOPS for f in user_frames(inside) for b in f.blocks)
    done = [o for o in case.history.of(waiter) if o.record_id <= front.record_id]
    passes = [len(list(same)) for path, same in groupby(done, _path) if path == _path(front)]
    # The first pass on record may be the last of several, with nothing in between.
    before = passes[int(_path(done[0]) == _path(front)) : -1] if done else []
    return mine if loops and len(inside) < len(mine.frames) and before and passes[-1] > 1 else None


def _path(operation: Operation) -> tuple[tuple[str, int], ...]:
    return tuple((f.file, f.line) for f in operation.frames or ())


def _row(awaiting: Awaiting, last: ProcessSample, *, called: bool) -> Signature:
    if awaiting.place == "tasks":
        return NO_TASK
    if awaiting.place == "server":
        return NO_CLIENT
    if called:
        return CALLED_OTHERS
    from_caller = last.caller is not None and last.writers == (last.caller.pid,)
    return NO_COMMAND_FROM_CALLER if from_caller else NO_COMMAND


def _who_calls(caller: CallerProcess | None) -> str:
    if caller is None:
        return "Who is to call it is not visible from here."
    where = f" is in {caller.stack[0]}" if caller.stack else " lives"
    return f"It has not been called by process {caller.pid} ({caller.name}), which started it and{where}."


def _at_caller(rank: int, caller: CallerProcess | None) -> tuple[Evidence, ...]:
    if caller is None:
        return ()
    return tuple(
        Evidence(rank, "caller", f"process {caller.pid} ({caller.name}) is in {line}") for line in caller.stack[:2]
    )
