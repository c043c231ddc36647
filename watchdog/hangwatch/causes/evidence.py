"""Evidence: what was seen on a rank, in words. Every rule draws its evidence from here, so that it reads the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.find import annotated
from hangwatch.analysis.divergence.iterations import around
from hangwatch.analysis.divergence.relate import Fork
from hangwatch.analysis.divergence.values import DecidingValue, deciding_values
from hangwatch.analysis.operations.signatures import describe
from hangwatch.analysis.places import user_frame, where
from hangwatch.analysis.ranks.views import RankView
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import Block, Frame
from hangwatch.model.text import number_ranks, short_place

#: At most so many lines of a log, or problems that NCCL reports, are evidence.
_EVENTS_SHOWN = 3
#: At most so many coroutines.
_TASKS_SHOWN = 3
#: A variable's values are shown on so many ranks: one of each side.
_SIDES = 2
#: At most so many values of one variable.
_VALUES_SHOWN = 4


def present_culprits(case: Case) -> list[tuple[int, RankView]]:
    """Return the culprits that are seen, neither gone nor stopped, and by their stacks wait for no other rank."""
    return [(r, v) for r, v in case.seen_culprits if not v.gone and v.motion.state != "stopped" and v.wait is None]


def stuck_culprits(case: Case) -> list[tuple[int, RankView]]:
    """Return the present culprits that do not move."""
    return [(r, v) for r, v in present_culprits(case) if v.motion.state == "stuck"]


def at_frame(rank: int, frame: Frame | None, note: str = "") -> tuple[Evidence, ...]:
    """Return that the rank is in this line, as evidence; none without a frame."""
    return (Evidence(rank, "stack", where(frame) + (f" ({note})" if note else "")),) if frame is not None else ()


def at_stack(case: Case, rank: int, frame: Frame | None = None) -> tuple[Evidence, ...]:
    """Return where the rank's main thread is: the library frame that says most, and the user's line."""
    frames = case.views[rank].frames if rank in case.views else ()
    own = user_frame(frames)
    shown = [f for f in (frame or (frames[0] if frames else None), own) if f is not None]
    distinct = shown[:1] if len(shown) > 1 and shown[0] == shown[1] else shown
    return tuple(Evidence(rank, "stack", where(f)) for f in distinct)


def at_sleep(case: Case, rank: int) -> tuple[Evidence, ...]:
    """Return when its sleep, or its wait with a time-out, ends, if the kernel knows."""
    last = case.views[rank].sample if rank in case.views else None
    if last is None or last.sleep_left_s is None:
        return ()
    return (Evidence(rank, "process", f"the current wait ends within {max(1, math.ceil(last.sleep_left_s))} s"),)


def at_tasks(case: Case, rank: int) -> tuple[Evidence, ...]:
    """Return where the coroutines of its event loops wait, first those that have waited since the program began."""
    tasks = case.views[rank].capture.tasks if rank in case.views else ()
    own = ((task, user_frame(task.frames)) for task in tasks)
    found = (Evidence(rank, "coroutine", f"{t.name} waits in {where(f)}") for t, f in own if f is not None)
    return tuple(islice(found, _TASKS_SHOWN))


def at_handling(case: Case, rank: int) -> tuple[Evidence, ...]:
    """Return the exceptions that side threads of the rank are handling: each is in an ``except`` or a ``finally``."""
    lines = case.views[rank].capture.thread_handled_error if rank in case.views else ()
    return tuple(Evidence(rank, "exception", f"being handled in {line}") for line in lines)


def at_call(case: Case, rank: int) -> tuple[Evidence, ...]:
    """Return where the rank called the operation that it is in, as far as that is recorded."""
    front = case.views[rank].frontier if rank in case.views else None
    called = user_frame(annotated(case, front.frames)) if front is not None and front.frames else None
    return (Evidence(rank, "flight recorder", f"called in {where(called)}"),) if called is not None else ()


def at_process(case: Case, rank: int) -> tuple[Evidence, ...]:
    """Return what the kernel says of the rank's process, and whether it moves."""
    view = case.views.get(rank)
    if view is None or not view.capture.processes:
        return ()
    moves = f"; {view.motion.describe()}" if not view.gone else ""
    return (Evidence(rank, "process", describe_process(view.capture.processes[-1]) + moves),)


def describe_process(sample: ProcessSample) -> str:
    """Return a process sample in words."""
    end = sample.exit
    if sample.state == "gone" or (sample.state == "Z" and end is not None):
        if end is None or (end.code is None and end.signal is None):
            return "the process is gone; how it ended is not known"
        how = f"ended by signal {end.signal}" if end.signal is not None else f"exited with status {end.code}"
        return how + (" (out-of-memory killer)" if end.oom_killed else "")
    parts = [f"state {sample.state}"]
    if sample.frozen:
        parts.append("its cgroup is frozen")
    if sample.syscall:
        parts.append(f"in {sample.syscall}()" + (f" on {sample.blocked_on}" if sample.blocked_on else ""))
    if sample.wait_channel and sample.wait_channel != "0":
        parts.append(f"kernel wait channel {sample.wait_channel}")
    return ", ".join(parts)


def at_store(case: Case, rank: int) -> tuple[Evidence, ...]:
    """Return which store a rank awaits a key of, and who is connected to it."""
    view = case.views.get(rank)
    store = view.sample.store if view is not None and view.sample is not None else None
    if store is None:
        return ()
    here = f"processes {', '.join(map(str, store.clients))}" if store.clients else "no other process on this node"
    more = f", and {store.unseen} not visible from here" if store.unseen else ""
    says = f"waits for the store at {store.address}; connected to the store: {here}{more}"
    return (Evidence(rank, "process", says),)


def at_kernel(case: Case, rank: int) -> tuple[Evidence, ...]:
    """Return what the kernel's log says of the rank's own process."""
    events = (e for node in case.capture.nodes for e in node.events if e.rank == rank)
    return tuple(Evidence(rank, "kernel log", e.text) for e in events)[-_EVENTS_SHOWN:]


def at_ras(case: Case) -> tuple[Evidence, ...]:
    """Return where NCCL itself, which counts what each rank has launched, sees its ranks apart."""
    problems = (p for node in case.capture.nodes for report in node.ras for p in report.problems)
    return tuple(Evidence(p.ranks[0] if len(p.ranks) == 1 else None, "nccl ras", p.says) for p in problems)[
        :_EVENTS_SHOWN
    ]


def at_recorder(case: Case, ranks: Sequence[int]) -> tuple[Evidence, ...]:
    """Return what each of the ranks used the sequence number of the divergence for."""
    diverged_at = case.blame.diverged_at
    if diverged_at is None:
        return ()
    found = []
    for rank in ranks:
        operation = case.history.at(diverged_at.group.key, diverged_at.seq).get(rank)
        if operation is not None:
            done = " (completed)" if operation.completed else ""
            text = f"sequence number {diverged_at.seq} of {diverged_at.group.label} is {describe(operation)}{done}"
        else:
            side = diverged_at.side_of(rank)
            if side is None or side.operation is not None:
                continue
            text = f"has not reached sequence number {diverged_at.seq} of {diverged_at.group.label}"
        found.append(Evidence(rank, "flight recorder", text))
    return tuple(found)


def at_front(case: Case, rank: int) -> tuple[Evidence, ...]:
    """Return what the recorder alone says of a culprit: what it is in, or that it is in nothing, and what others wait for."""
    view = case.views.get(rank)
    if view is None:
        return (Evidence(rank, "flight recorder", "nothing was recorded for this rank"),)
    if view.capture.flight is None:
        return ()
    front = view.frontier
    if front is None:
        joined = [e.operation for e in case.graph.edges if rank in e.awaited and e.operation is not None]
        awaited = min(joined, key=lambda o: (o.p2p, o.created_ns), default=None)
        number = "" if awaited is None or awaited.p2p else f" (sequence number {awaited.seq})"
        missed = f" and has not joined {awaited.op} of {awaited.group.label}{number}" if awaited is not None else ""
        return (Evidence(rank, "flight recorder", f"has no operation in flight{missed}"),)
    number = "" if front.p2p else f" (sequence number {front.seq} of {front.group.label})"
    done = [r for r, o in case.history.at(front.group.key, front.seq).items() if r != rank and o.completed]
    ends = case.history.completed(front.group.key)
    done = sorted({*done, *(r for r, end in ends.items() if r != rank and end >= front.seq)}) if not front.p2p else []
    alone = len(done) == len(front.group.ranks) - 1 and done
    others = f", which {number_ranks(done)} completed" if done else ""
    mark = "; only this rank has not" if alone else ""
    said = f"its oldest unfinished operation is {describe(front)}{number}{others}{mark}"
    return (Evidence(rank, "flight recorder", said),)


def named(block: Block) -> str:
    """Return a block in words, by its header; ``the else of`` it for an ``else``."""
    return f"the else of `{block.text}`" if block.kind in {"else", "after"} else f"`{block.text}`"


def branch_of(block: Block) -> str:
    """Return a condition's block as what a rank takes: ``the branch `if x:```, ``the else of `if x:```."""
    return named(block) if block.kind in {"else", "after"} else f"the branch {named(block)}"


def at_fork(case: Case, fork: Fork) -> tuple[Evidence, ...]:
    """Return both sides of a fork: the lines at which they part, what they are under, what they issued."""
    found: list[Evidence] = []
    for side in (fork.culprit, fork.other):
        note = ""
        if fork.block is not None:
            inside = fork.only == side.rank
            place = _place_of(fork, fork.block, side.at)
            if fork.block.kind == "guard":
                note = f"past `{fork.block.text}`, {place}" if inside else ""
            else:
                note = f"{'under' if inside else 'not under'} {named(fork.block)}, {place}"
        found += at_frame(side.rank, side.at, note)
        own = user_frame(side.path)
        if own is not None and side.at is not None and (own.file, own.line) != (side.at.file, side.at.line):
            found += at_frame(side.rank, own)
    values = (
        Evidence(rank, "stack", f"`{v.name}` is {shown}")
        for v in deciding_values(case, fork)
        for rank, shown in list(v.held.items())[:_SIDES]
    )
    return (*found, *values, *at_recorder(case, (fork.culprit.rank, fork.other.rank)))


def _place_of(fork: Fork, block: Block, at: Frame | None) -> str:
    """Return the line of a fork's block, with its file if that is not the file of ``at``."""
    home = next((found for side in fork.sides if (found := around(side.path, block)) is not None), at)
    same = at is None or home is None or home.file == at.file
    return f"line {block.line}" if same or home is None else short_place(home.file, block.line)


def tell_values(case: Case, fork: Fork) -> str:
    """Return sentences on what the variables of the fork's condition hold on both sides; empty if not known."""
    return "".join(f" {_tell_value(v)}" for v in deciding_values(case, fork))


def _tell_value(value: DecidingValue) -> str:
    """Return a value by rank in one sentence: ``n_tokens`` is 0 on rank 2 and 31 on ranks 0, 1."""
    ranks: dict[str, list[int]] = {}
    for rank, shown in value.held.items():
        ranks.setdefault(shown, []).append(rank)
    parts = [f"{shown} on {number_ranks(on)}" for shown, on in list(ranks.items())[:_VALUES_SHOWN]]
    return f"`{value.name}` is {', '.join(parts[:-1])} and {parts[-1]}."
