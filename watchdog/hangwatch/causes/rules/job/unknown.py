"""When nothing fits: say what was seen and what was not."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.analysis.case import Case
from hangwatch.analysis.divergence.frames import where
from hangwatch.analysis.divergence.iterations import LOOPS
from hangwatch.analysis.divergence.relate import is_decisive
from hangwatch.analysis.places import user_frame, user_frames
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import at_front, at_ras, at_stack, named
from hangwatch.causes.signature import Match, Signature
from hangwatch.model.capture import Gap
from hangwatch.model.incident import Evidence
from hangwatch.model.text import format_ranks

UNKNOWN = Signature("unknown", "nothing-fits", "possible", general=True)
_SLEEPS = frozenset({"clock_nanosleep", "nanosleep"})
#: Of how many ranks, and of how many things that could not be seen, is reported.
_SHOWN = 3


def unknown(case: Case) -> Match:
    """Always fits, with the least confidence."""
    seen = tuple(e for rank in case.blame.culprits[:_SHOWN] for e in _seen(case, rank)) + at_ras(case)
    missing = tuple(Evidence(gap.rank, gap.source, f"not seen: {gap.reason}") for gap in _telling(case))
    if case.blame.shape == "outside":
        waiters = sorted({r for edge in case.graph.edges if edge.reason == "outside" for r in edge.waiters})
        seen = tuple(e for rank in waiters[:_SHOWN] for e in (*at_front(case, rank), *at_stack(case, rank)))
        said = (
            f"{_name(waiters).capitalize()} shares a group with a process that is no rank of this job, and waits for it there. "
            "Nothing is known of that process here: look at it, where it runs."
        )
        return Match(UNKNOWN, said, seen + missing)
    if not case.blame.culprits:
        said = "No rank could be named, and why nothing completes is not clear from what was seen."
        return Match(UNKNOWN, said, seen + missing)
    rank = case.blame.culprits[0]
    view = case.views.get(rank)
    readers = [r for r in case.blame.waiting if (w := case.views[r].wait) is not None and w.kind == "store"]
    if readers:
        seen += tuple(e for r in readers[:1] for e in at_stack(case, r))
        said = (
            f"Rank {format_ranks(readers)} waits for a key of the store that is not set; rank "
            f"{format_ranks(case.blame.culprits)} is at another place. Who was to set it cannot be seen."
        )
        return Match(UNKNOWN, said, seen + missing)
    if view is None or not (view.frames or view.capture.processes):
        return Match(UNKNOWN, _by_recorder(case), seen + missing)
    return Match(UNKNOWN, f"{_describe(view)} {_settle(case, view)}", seen + _came_near(view) + missing)


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
    what = "" if _sleeps(view) else " What it waits for there could not be seen."
    return f"Rank {view.rank} {how}{at}{via}{goes}{under}.{what}"


def _came_near(view: RankView) -> tuple[Evidence, ...]:
    """What speaks against the causes that come first to mind at such a stack: what each of them would have shown."""
    last = view.capture.processes[-1] if view.capture.processes else None
    if last is None or view.motion.state != "stuck":
        return ()
    call = (
        f"it is in {last.syscall}()"
        if last.syscall
        else f"it is in {last.wait_channel or 'a call that cannot be seen'}"
    )
    near = [("blocked-io", f"{call}, and no file, pipe or connection is known that it is blocked on")]
    if last.cpu_s and view.motion.cpu_share is not None:
        near.append(("busy-loop", f"it used {view.motion.cpu_share:.0%} of a core over {view.motion.window_s:.1f} s"))
    if not view.side_threads:
        near.append(("thread-stall", "it has no other thread of the program's"))
    if not last.children:
        near.append(("child-stall", "it has no child process"))
    return tuple(Evidence(view.rank, "process", f"not {cause}: {why}") for cause, why in near)


def _settle(case: Case, view: RankView) -> str:
    """Which command would say more."""
    hint = next((gap.hint for gap in _telling(case) if gap.hint and gap.rank in {None, view.rank}), None)
    if hint is not None:
        return f"What could not be read may say more: {hint}."
    if _sleeps(view):
        return "`hangwatch dump --with-values` shows what its variables hold."
    identity = view.capture.identity
    command = f"py-spy dump --native --pid {identity.pid}"
    return f"`{command}` on {identity.node} pauses it for a moment, and shows where it is below Python."


def _sleeps(view: RankView) -> bool:
    """Whether the thread is in a sleep that its program asked for: the kernel's call, of the program's own line."""
    calls = {sample.syscall for sample in view.capture.processes[-2:]}
    return bool(calls) and calls <= _SLEEPS and "sleep(" in ((view.frames[0].source or "") if view.frames else "")


def _seen(case: Case, rank: int) -> tuple[Evidence, ...]:
    """What is known of a culprit: how it is and moves, or what its recorder says where there is nothing else."""
    view = case.views.get(rank)
    if view is None or not (view.frames or view.capture.processes):
        return at_front(case, rank)
    return (Evidence(rank, "stack", f"{view.state}: {view.motion.describe()}"),)


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
    return " ".join((*said, "Its stack would show why, but could not be read."))


def _name(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"
