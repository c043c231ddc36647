"""Which causes came near if none fits: their rules would have named them, but for one fact. Pure.

Nothing of a rule is written a second time: each is asked again about a culprit with one fact changed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from hangwatch.analysis.case import Case
from hangwatch.analysis.motion.samples import Motion
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import stuck_culprits
from hangwatch.causes.match import Match
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import ProcessSample

#: How many children are named.
_SHOWN = 3


@dataclass(frozen=True)
class _Fact:
    """A fact of a rank that might have been another. ``otherwise``: the rank with it changed; ``truth``: what it is, in words.

    ``concerns``: True if the fact can be changed for a process.
    """

    otherwise: Callable[[RankView], RankView]
    truth: Callable[[RankView, ProcessSample], str]
    concerns: Callable[[ProcessSample], bool] = lambda _: True


def come_near(case: Case, found: Container[str], ask: Callable[[Case], Iterable[Match]]) -> tuple[Evidence, ...]:
    """Return what speaks against causes that are not ``found``: a line for each fact of the first culprit that they lack.

    ``ask``: returns what the rules about single ranks say of a case.
    """
    lines: list[Evidence] = []
    named: set[str] = set()
    for rank, view in stuck_culprits(case)[:1]:
        last = view.capture.processes[-1]
        for fact in (one for one in _FACTS if one.concerns(last)):
            blame = replace(case.blame, culprits=(rank,))
            other = replace(case, blame=blame, views={**case.views, rank: fact.otherwise(view)})
            causes = {match.cause for match in ask(other)}
            near = sorted(cause for cause in causes - named if cause not in found)
            named.update(near)
            if near:
                lines.append(Evidence(rank, "process", f"not {', '.join(near)}: {fact.truth(view, last)}"))
    return tuple(lines)


def _in_call(view: RankView, syscall: str, channel: str, state: str = "S") -> RankView:
    """Return the rank as if its thread were in another system call."""
    samples = view.capture.processes

    def moved(sample: ProcessSample) -> ProcessSample:
        return with_fields(sample, syscall=syscall, wait_channel=channel, blocked_on=None, state=state)

    processes = (*samples[:-2], *map(moved, samples[-2:]))
    return replace(view, capture=with_fields(view.capture, processes=processes))


def _computing(view: RankView) -> RankView:
    return replace(_in_call(view, "", "", "R"), motion=Motion("busy", view.motion.window_s, 1.0, False))


def _where(sample: ProcessSample) -> str:
    call = f"{sample.syscall}()" if sample.syscall else sample.wait_channel or "an unknown call"
    return f"the main thread is in {call}"


def _still(view: RankView, _: ProcessSample) -> str:
    return f"does not move and used {view.motion.cpu_share or 0.0:.0%} of a core over {view.motion.window_s:.1f} s"


def _no_file(_: RankView, last: ProcessSample) -> str:
    return f"{_where(last)}, without a known file, pipe or connection"


def _no_lock(_: RankView, last: ProcessSample) -> str:
    return f"{_where(last)}, which does not wait for a lock"


def _no_child(_: RankView, last: ProcessSample) -> str:
    children = ", ".join(f"{child.pid} ({child.name})" for child in last.children[:_SHOWN])
    return f"{_where(last)}, which does not wait for the child process {children}"


_FACTS = (
    _Fact(lambda view: _in_call(view, "read", "pipe_read"), _no_file),
    _Fact(_computing, _still),
    _Fact(lambda view: _in_call(view, "futex", "futex_wait_queue"), _no_lock),
    _Fact(lambda view: _in_call(view, "wait4", "do_wait"), _no_child, lambda last: bool(last.children)),
)
