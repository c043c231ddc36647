"""When nothing fits: say what was seen and what was not."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.frames import where
from hangwatch.analysis.divergence.iterations import LOOPS
from hangwatch.analysis.divergence.relate import is_decisive
from hangwatch.analysis.places import user_frame, user_frames
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import at_front, at_handling, at_ras, at_sleep, at_stack, at_store, named
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.capture import Gap
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import SLEEPS
from hangwatch.model.text import format_ranks

UNKNOWN = Signature("unknown", "nothing-fits", "possible", general=True)
#: What tells which key it is.
_KEY = (
    "`hangwatch dump --with-values` shows the variables that the key is made of; the program's own `set` of that key shows "
    "which rank has not come by it."
)
#: Of how many ranks, and of how many things that could not be seen, is reported.
_SHOWN = 3


def unknown(case: Case) -> Match:
    """Always fits, with the least confidence. What came near is added where all rules are known (``registry``)."""
    said, shown = _said(case)
    seen = tuple(e for rank in case.blame.culprits[:_SHOWN] for e in _seen(case, rank)) + at_ras(case)
    missing = tuple(Evidence(gap.rank, gap.source, f"not seen: {gap.reason}") for gap in _telling(case))
    return Match(UNKNOWN, said, (*seen, *shown, *missing))


def _said(case: Case) -> tuple[str, tuple[Evidence, ...]]:
    """What is known, in a sentence, with the command that would tell more; and what of it was seen on ranks that wait."""
    if case.blame.shape == "outside":
        return _outside(case)
    if not case.blame.culprits:
        return _nobody(case)
    view = case.views.get(case.blame.culprits[0])
    seen = (r for r in (*case.blame.waiting, *case.blame.culprits) if r in case.views)
    readers = [r for r in seen if (w := case.views[r].wait) is not None and w.kind == "store"]
    if readers:
        return _key_not_set(case, readers)
    if view is None or not (view.frames or view.capture.processes):
        return _by_recorder(case), ()
    return f"{_describe(view)} {_settle(case, view)}", ()


def _outside(case: Case) -> tuple[str, tuple[Evidence, ...]]:
    """Ranks wait for a process that is not seen: for a place of a group, or for a key that it may be to set."""
    edges = case.graph.leaving
    waiters = sorted({r for edge in edges for r in edge.waiters})
    who = _name(waiters).capitalize()
    waits, shares = ("waits", "shares") if len(waiters) == 1 else ("wait", "share")
    if edges[0].reason == "key":
        said = (
            f"{who} {waits} for a key of a store, or for its host{_at(case, waiters)}, and none of the processes that are seen "
            f"is known to be the one that is awaited. {_KEY}"
        )
        return said, tuple(e for rank in waiters[:_SHOWN] for e in (*at_stack(case, rank), *at_store(case, rank)))
    shown = tuple(e for rank in waiters[:_SHOWN] for e in (*at_front(case, rank), *at_stack(case, rank)))
    lost = "not peer-world-lost: of no process of the group it waits in is it known that it has ended or failed"
    said = (
        f"{who} {shares} a group with a process that is no rank of this job, and {waits} for it there{_at(case, waiters)}. "
        "Nothing is known of that process here. `hangwatch dump` on its node shows whether it lives and where it is; agents "
        "that have one exchange tell each other."
    )
    return said, (*shown, *(Evidence(rank, "process", lost) for rank in waiters[:1]))


def _nobody(case: Case) -> tuple[str, tuple[Evidence, ...]]:
    """All that was seen waits, and for whom is not known."""
    waiting = [r for r in case.blame.waiting if r in case.views]
    if not waiting:
        return "No rank could be named, and why nothing completes is not clear from what was seen.", ()
    view = case.views[waiting[0]]
    shown = at_stack(case, waiting[0])
    if view.wait is not None and view.wait.kind == "store":
        return (
            f"{_reads_key(case, waiting)}. No rank is known to be at fault: who was to set it cannot be seen. {_KEY}",
            (
                *shown,
                _reached(waiting[0]),
            ),
        )
    others = Evidence(
        waiting[0], "stack", "no other rank is at another place, gone or stopped: nobody keeps it waiting alone"
    )
    said = f"{_describe(view)} No rank could be named: all that were seen wait as well. {_settle(case, view)}"
    return said, (*shown, others)


def _key_not_set(case: Case, readers: Sequence[int]) -> tuple[str, tuple[Evidence, ...]]:
    """Ranks wait for a key, and some culprits are elsewhere."""
    others = [r for r in case.blame.culprits if r not in readers]
    elsewhere = f"; {_name(others)} is at another place{_at(case, others)}" if others else ""
    said = f"{_reads_key(case, readers)}{elsewhere}. Who was to set it cannot be seen. {_KEY}"
    return said, (*at_stack(case, readers[0]), _reached(readers[0]))


def _reads_key(case: Case, readers: Sequence[int]) -> str:
    verb = "waits" if len(readers) == 1 else "wait"
    return f"{_name(readers).capitalize()} {verb} for a key of the store that is not set{_at(case, readers)}"


def _reached(rank: int) -> Evidence:
    return Evidence(rank, "stack", "not store-unreachable: it has reached the store, which has no such key")


def _at(case: Case, ranks: Sequence[int]) -> str:
    """Where the first of these ranks is, by its program's own line, if that was seen."""
    own = user_frame(case.views[ranks[0]].frames) if ranks and ranks[0] in case.views else None
    return f", in {where(own)}" if own is not None else ""


def _describe(view: RankView) -> str:
    """Where a rank is and by what it came there, in one sentence: a call, its line, the loop and the condition around it."""
    own = user_frame(view.frames)
    deepest = view.frames[0] if view.frames else None
    how = "sleeps" if _sleeps(view) else "is stuck" if view.motion.state == "stuck" else "is"
    at = f" in {where(own)}" if own is not None else ""
    via = f", inside {where(deepest)}" if deepest is not None and deepest != own else ""
    found = [(f, b) for f in user_frames(view.frames) for b in reversed(f.blocks)]
    loop = next((b for f, b in found if f == own and b.kind in LOOPS), None)
    condition = next((b for _, b in found if b.kind in {"if", "else"} and is_decisive(b)), None)
    goes = f", in the loop `{loop.text}` (line {loop.line})" if loop is not None else ""
    under = f", under {named(condition)} (line {condition.line})" if condition is not None else ""
    tasks = _tasks(view)
    seen = f" It awaits tasks of Ray, of which these are not done: {', '.join(tasks)}." if tasks else ""
    what = seen or ("" if _sleeps(view) else " What it waits for there could not be seen.")
    return f"Rank {view.rank} {how}{at}{via}{goes}{under}.{what}"


def _settle(case: Case, view: RankView) -> str:
    """Which command would say more."""
    hint = next((gap.hint for gap in _telling(case) if gap.hint and gap.rank in {None, view.rank}), None)
    if hint is not None:
        return f"What could not be read may say more: {hint}."
    if _tasks(view):
        return "`ray list tasks` and `ray status` say where they are, and what they ask for."
    if _sleeps(view):
        return "`hangwatch dump --with-values` shows what its variables hold."
    identity = view.capture.identity
    command = f"py-spy dump --native --pid {identity.pid}"
    return f"`{command}` on {identity.node} pauses it for a moment, and shows where it is below Python."


def _tasks(view: RankView) -> tuple[str, ...]:
    """The tasks of Ray that it awaits."""
    return view.sample.tasks if view.sample is not None else ()


def _sleeps(view: RankView) -> bool:
    """Whether the thread is in a sleep that its program asked for: the kernel's call, of the program's own line."""
    calls = {sample.syscall for sample in view.capture.processes[-2:]}
    return bool(calls) and calls <= SLEEPS and "sleep(" in ((view.frames[0].source or "") if view.frames else "")


def _seen(case: Case, rank: int) -> tuple[Evidence, ...]:
    """What is known of a culprit: how it is and moves, or what its recorder says where there is nothing else."""
    view = case.views.get(rank)
    if view is None or not (view.frames or view.capture.processes):
        return at_front(case, rank)
    moves = Evidence(rank, "stack", f"{view.state}: {view.motion.describe()}")
    return (moves, *at_sleep(case, rank), *at_handling(case, rank))


def _telling(case: Case) -> list[Gap]:
    """What could not be seen, without the files that were merely not used."""
    return [gap for gap in case.capture.gaps if gap.source != "file"][:_SHOWN]


def _by_recorder(case: Case) -> str:
    """What the recorders show of culprits of whom there is no stack."""
    ranks = case.blame.culprits
    if not any(r in case.views for r in ranks):
        return f"The others wait for {_name(ranks)}, of which nothing was there to be read."
    idle = [r for r in ranks if r in case.views and case.views[r].frontier is None]
    blocked = [r for r in ranks if r in case.views and case.views[r].frontier is not None]
    said = []
    if idle:
        said.append(
            f"{_name(idle).capitalize()}: nothing in flight, so whatever holds it is outside of all recorded operations."
        )
    if blocked:
        said.append(f"{_name(blocked).capitalize()}: in an operation that it alone cannot finish, or that no rank can.")
    hint = next((gap.hint for gap in _telling(case) if gap.hint and gap.rank in {None, *ranks}), None)
    pid = next((case.views[r].capture.identity.pid for r in ranks if r in case.views), 0)
    command = hint or (
        f"`py-spy dump --pid {pid}` on its node, while it lives" if pid else "`hangwatch dump` on its node"
    )
    return " ".join((*said, f"Its stack would show why, but could not be read: {command}."))


def _name(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"
