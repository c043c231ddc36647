"""Evidence: what was seen on a rank, in words. Every rule draws its evidence from here, so that it reads the same."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.places import user_frame
from hangwatch.analysis.signatures import describe
from hangwatch.analysis.views import RankView
from hangwatch.causes.forks import Fork
from hangwatch.causes.frames import where
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import ProcessSample
from hangwatch.model.stacks import Frame


def looked_at(case: Case) -> list[tuple[int, RankView]]:
    """The culprits that are there to be looked at and not waiting for other ranks by what their stacks show."""
    found = [(r, case.views[r]) for r in case.blame.culprits if r in case.views]
    return [(r, v) for r, v in found if not v.gone and v.motion.state != "stopped" and v.wait is None]


def standing(case: Case) -> list[tuple[int, RankView]]:
    """Those of them that do not move."""
    return [(r, v) for r, v in looked_at(case) if v.motion.state == "stuck"]


def at_frame(rank: int, frame: Frame | None, note: str = "") -> tuple[Evidence, ...]:
    """The rank is in this line."""
    return (Evidence(rank, "stack", where(frame) + (f" ({note})" if note else "")),) if frame is not None else ()


def at_stack(case: Case, rank: int, frame: Frame | None = None) -> tuple[Evidence, ...]:
    """Where the rank's main thread is: the telling library frame and the user's line."""
    frames = case.views[rank].frames if rank in case.views else ()
    own = user_frame(frames)
    shown = [f for f in (frame or (frames[0] if frames else None), own) if f is not None]
    distinct = shown[:1] if len(shown) > 1 and shown[0] == shown[1] else shown
    return tuple(Evidence(rank, "stack", where(f)) for f in distinct)


def at_process(case: Case, rank: int) -> tuple[Evidence, ...]:
    """What the kernel says of the rank's process, and whether it moves."""
    view = case.views.get(rank)
    if view is None or not view.capture.processes:
        return ()
    return (Evidence(rank, "process", f"{describe_process(view.capture.processes[-1])}; {view.motion.describe()}"),)


def describe_process(sample: ProcessSample) -> str:
    """A process sample in words."""
    if sample.state == "gone":
        end = sample.exit
        if end is None or (end.code is None and end.signal is None):
            return "the process is gone, how it ended was not seen"
        how = f"ended by signal {end.signal}" if end.signal is not None else f"exited with status {end.code}"
        return how + (", killed by the kernel for memory" if end.oom_killed else "")
    parts = [f"state {sample.state}"]
    if sample.frozen:
        parts.append("its cgroup is frozen")
    if sample.syscall:
        parts.append(f"in {sample.syscall}()" + (f" on {sample.blocked_on}" if sample.blocked_on else ""))
    if sample.wait_channel and sample.wait_channel != "0":
        parts.append(f"kernel wait channel {sample.wait_channel}")
    return ", ".join(parts)


def at_recorder(case: Case, ranks: Sequence[int]) -> tuple[Evidence, ...]:
    """What each of the ranks used the sequence number of the parting for."""
    parting = case.blame.parting
    if parting is None:
        return ()
    found = []
    for rank in ranks:
        operation = case.history.at(parting.group.key, parting.seq).get(rank)
        if operation is not None:
            done = ", and it went through" if operation.completed else ""
            text = f"number {parting.seq} of {parting.group.label} is {describe(operation)}{done}"
        else:
            side = parting.side_of(rank)
            if side is None or side.operation is not None:
                continue
            text = f"has not come to number {parting.seq} of {parting.group.label}"
        found.append(Evidence(rank, "flight recorder", text))
    return tuple(found)


def at_fork(case: Case, fork: Fork) -> tuple[Evidence, ...]:
    """Both sides of a fork: the lines at which they part, what they are under, what they issued."""
    found: list[Evidence] = []
    for side in (fork.mine, fork.theirs):
        note = ""
        if fork.block is not None:
            inside = fork.only == side.rank
            held = f"`{fork.block.text}` (line {fork.block.line})"
            if fork.block.kind == "guard":
                note = f"past {held}" if inside else ""
            else:
                note = (
                    f"{'under' if inside else 'not under'} {'the else of ' if fork.block.kind == 'else' else ''}{held}"
                )
        found += at_frame(side.rank, side.at, note)
        own = user_frame(side.path)
        if own is not None and side.at is not None and (own.file, own.line) != (side.at.file, side.at.line):
            found += at_frame(side.rank, own)
    return (*found, *at_recorder(case, (fork.mine.rank, fork.theirs.rank)))
