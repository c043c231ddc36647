"""When nothing fits: say what was seen and what was not."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.iterations import LOOPS
from hangwatch.analysis.places import user_frame, user_frames, where
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import at_front, at_handling, at_process, at_ras, at_sleep, at_stack, at_store, named
from hangwatch.causes.match import Match
from hangwatch.model.capture import Gap
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import SLEEPS
from hangwatch.model.text import number_ranks, ranks_do
from hangwatch.program.lines import header_of

#: How to find out which key it is.
_KEY = (
    "`hangwatch dump --with-values` shows the variables that make up the key. The program's own "
    "`set` of that key shows which rank has not reached it."
)
#: How many ranks, and how many gaps, are reported.
_SHOWN = 3


def unknown(case: Case) -> Match:
    """Return a match that always fits, with the least confidence."""
    said, shown = _said(case)
    seen = tuple(e for rank in case.blame.culprits[:_SHOWN] for e in _at_culprit(case, rank)) + at_ras(case)
    missing = tuple(Evidence(gap.rank, gap.source, f"not seen: {gap.reason}") for gap in _telling_gaps(case))
    return Match("unknown", "seen", said, (*seen, *shown, *missing))


def _said(case: Case) -> tuple[str, tuple[Evidence, ...]]:
    """Return what is known, with the command that would tell more, and what of it was seen."""
    if case.blame.shape == "outside":
        return _outside_job(case)
    if not case.blame.culprits:
        return _without_culprit(case)
    view = case.views.get(case.blame.culprits[0])
    seen = (r for r in (*case.blame.waiting, *case.blame.culprits) if r in case.views)
    readers = [r for r in seen if (w := case.views[r].wait) is not None and w.kind == "store"]
    if readers:
        return _key_not_set(case, readers)
    if view is None or not (view.frames or view.capture.processes):
        return _by_recorder(case), ()
    return f"{_describe(view)} {_next_step(case, view)}", at_process(case, view.rank)


def _outside_job(case: Case) -> tuple[str, tuple[Evidence, ...]]:
    """Return the same for ranks that wait for an unseen process: for a member of a group, or for a key that it may set."""
    edges = case.graph.leaving
    waiters = sorted({r for edge in edges for r in edge.waiters})
    who = number_ranks(waiters).capitalize()
    waits, shares = ("waits", "shares") if len(waiters) == 1 else ("wait", "share")
    if edges[0].reason == "key":
        said = (
            f"{who} {waits} for a key of a store, or for its host{_in_line(case, waiters)}. Which process "
            f"should set it is not visible. {_KEY}"
        )
        return said, tuple(e for rank in waiters[:_SHOWN] for e in (*at_stack(case, rank), *at_store(case, rank)))
    shown = tuple(e for rank in waiters[:_SHOWN] for e in (*at_front(case, rank), *at_stack(case, rank)))
    lost = "not peer-world-lost: no process of the group is known to have ended or failed"
    said = (
        f"{who} {shares} a group with a process that is no rank of this job, and {waits} for "
        f"it{_in_line(case, waiters)}. Nothing is known about that process here. Run `hangwatch dump` on "
        "its node to see whether it is alive and where it is. Agents with peer discovery share this "
        "by themselves."
    )
    return said, (*shown, *(Evidence(rank, "process", lost) for rank in waiters[:1]))


def _without_culprit(case: Case) -> tuple[str, tuple[Evidence, ...]]:
    """Return the same if all that was seen waits, and it is not known for whom."""
    waiting = [r for r in case.blame.waiting if r in case.views]
    if not waiting:
        return "No rank could be named, and the observations do not show why nothing completes.", ()
    view = case.views[waiting[0]]
    shown = at_stack(case, waiting[0])
    if view.wait is not None and view.wait.kind == "store":
        return (
            (
                f"{_reads_key(case, waiting)}. No rank is known to be at fault, and which rank should set "
                f"the key is not visible. {_KEY}"
            ),
            (
                *shown,
                _reached(waiting[0]),
            ),
        )
    others = Evidence(waiting[0], "stack", "no other rank is elsewhere, gone or stopped: this rank does not wait alone")
    said = f"{_describe(view)} No rank could be named: all visible ranks wait too. {_next_step(case, view)}"
    return said, (*shown, others)


def _key_not_set(case: Case, readers: Sequence[int]) -> tuple[str, tuple[Evidence, ...]]:
    """Return the same if ranks wait for a key, and some culprits are elsewhere."""
    others = [r for r in case.blame.culprits if r not in readers]
    elsewhere = f"; {ranks_do(others, 'is', 'are')} elsewhere{_in_line(case, others)}" if others else ""
    said = f"{_reads_key(case, readers)}{elsewhere}. Which rank should set the key is not visible. {_KEY}"
    return said, (*at_stack(case, readers[0]), _reached(readers[0]))


def _reads_key(case: Case, readers: Sequence[int]) -> str:
    return f"{ranks_do(readers, 'waits', 'wait').capitalize()} for a store key that is not set{_in_line(case, readers)}"


def _reached(rank: int) -> Evidence:
    return Evidence(rank, "stack", "not store-unreachable: the rank has reached the store, which has no such key")


def _in_line(case: Case, ranks: Sequence[int]) -> str:
    """Return where the first of these ranks is, by its program's own line, if that was seen; else empty."""
    own = user_frame(case.views[ranks[0]].frames) if ranks and ranks[0] in case.views else None
    return f", in {where(own)}" if own is not None else ""


def _describe(view: RankView) -> str:
    """Return where a rank is and how it came there, in one sentence: a call, its line, the loop and the condition around it."""
    own = user_frame(view.frames)
    deepest = view.frames[0] if view.frames else None
    how = "sleeps" if _sleeps(view) else "is stuck" if view.motion.state == "stuck" else "is"
    at = f" in {where(own)}" if own is not None else ""
    via = f", inside {where(deepest)}" if deepest is not None and deepest != own else ""
    found = [(f, b) for f in user_frames(view.frames) for b in reversed(f.blocks)]
    loop = next((b for f, b in found if f == own and b.kind in LOOPS), None)
    condition = next((b for _, b in found if b.kind in {"if", "else"} and not header_of(b).alike), None)
    goes = f", in the loop `{loop.text}` (line {loop.line})" if loop is not None else ""
    under = f", under {named(condition)} (line {condition.line})" if condition is not None else ""
    tasks = _tasks(view)
    seen = f" It waits for Ray tasks that are not done: {', '.join(tasks)}." if tasks else ""
    what = seen or ("" if _sleeps(view) else " What it waits for is not visible.")
    return f"Rank {view.rank} {how}{at}{via}{goes}{under}.{what}"


def _next_step(case: Case, view: RankView) -> str:
    """Return which command would tell more."""
    hint = next((gap.hint for gap in _telling_gaps(case) if gap.hint and gap.rank in {None, view.rank}), None)
    if hint is not None:
        return f"To learn more, make the missing data readable: {hint}."
    if _tasks(view):
        return "`ray list tasks` and `ray status` show where the tasks are and what they ask for."
    if _sleeps(view):
        return "`hangwatch dump --with-values` shows the values of its variables."
    identity = view.capture.identity
    command = f"`py-spy dump --native --pid {identity.pid or 'PID'}` on {identity.node or 'its node'}"
    return f"Run {command} to see where it is below Python (this pauses the rank for a moment)."


def _tasks(view: RankView) -> tuple[str, ...]:
    """Return the tasks of Ray that a rank awaits."""
    return view.sample.tasks if view.sample is not None else ()


def _sleeps(view: RankView) -> bool:
    """True if the thread is in a sleep that its program asked for: the kernel's call, from the program's own line."""
    calls = {sample.syscall for sample in view.capture.processes[-2:]}
    return bool(calls) and calls <= SLEEPS and "sleep(" in ((view.frames[0].source or "") if view.frames else "")


def _at_culprit(case: Case, rank: int) -> tuple[Evidence, ...]:
    """Return what is known of a culprit: its state and motion, or what its recorder says if there is nothing else."""
    view = case.views.get(rank)
    if view is None or not (view.frames or view.capture.processes):
        return at_front(case, rank)
    moves = Evidence(rank, "stack", f"{view.state}: {view.motion.describe()}")
    return (moves, *at_sleep(case, rank), *at_handling(case, rank))


def _telling_gaps(case: Case) -> list[Gap]:
    """Return the first gaps of the capture, without the files that were merely not used."""
    return [gap for gap in case.capture.gaps if gap.source != "file"][:_SHOWN]


def _by_recorder(case: Case) -> str:
    """Return what the recorders show of culprits of whom there is no stack."""
    ranks = case.blame.culprits
    if not any(r in case.views for r in ranks):
        seen = [e.says for e in at_ras(case) if e.rank in ranks]
        if seen:
            return f"{ranks_do(ranks, 'has', 'have').capitalize()} left no record. NCCL's RAS says: {seen[0]}."
        are = "it is" if len(ranks) == 1 else "they are"
        return f"Nothing is known of {number_ranks(ranks)}, not even whether {are} at fault."
    idle = [r for r in ranks if r in case.views and case.views[r].frontier is None]
    blocked = [r for r in ranks if r in case.views and case.views[r].frontier is not None]
    said = []
    if idle:
        said.append(
            f"{number_ranks(idle).capitalize()}: no operation in flight, so the reason lies outside "
            "the recorded operations."
        )
    if blocked:
        said.append(
            f"{number_ranks(blocked).capitalize()}: in an operation that only this side, or no rank, cannot finish."
        )
    hint = next((gap.hint for gap in _telling_gaps(case) if gap.hint and gap.rank in {None, *ranks}), None)
    pid = next((case.views[r].capture.identity.pid for r in ranks if r in case.views), 0)
    command = hint or (
        f"`py-spy dump --pid {pid}` on its node, while the process lives" if pid else "`hangwatch dump` on its node"
    )
    return " ".join((*said, f"The stack would show why, but could not be read: {command}."))
