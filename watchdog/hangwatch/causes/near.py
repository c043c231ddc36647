"""Which causes came near where none fits: their rules would have named them, but for one thing that is not so. Pure.

Nothing of a rule is written down a second time: each is asked again about a culprit of which one fact is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from hangwatch.analysis.case import Case
from hangwatch.analysis.ranks.motion import Motion
from hangwatch.analysis.ranks.views import RankView
from hangwatch.causes.evidence import standing
from hangwatch.causes.signature import Match
from hangwatch.model.incident import Evidence
from hangwatch.model.processes import ProcessSample

#: Of how many children.
_SHOWN = 3


@dataclass(frozen=True)
class _Fact:
    """A fact of a rank that might have been another one. ``otherwise``: the rank as it would be then; ``truth``: what it is."""

    otherwise: Callable[[RankView], RankView]
    truth: Callable[[RankView, ProcessSample], str]
    concerns: Callable[[ProcessSample], bool] = lambda _: True


def come_near(case: Case, found: Container[str], ask: Callable[[Case], Iterable[Match]]) -> tuple[Evidence, ...]:
    """What speaks against causes that are not among those ``found``, a line for each fact that they lack, of the first culprit.

    ``ask``: what the rules about single ranks say of a case.
    """
    lines: list[Evidence] = []
    named: set[str] = set()
    for rank, view in standing(case)[:1]:
        last = view.capture.processes[-1]
        for fact in (one for one in _FACTS if one.concerns(last)):
            blame = replace(case.blame, culprits=(rank,))
            other = replace(case, blame=blame, views={**case.views, rank: fact.otherwise(view)})
            causes = {match.signature.cause for match in ask(other)}
            near = sorted(cause for cause in causes - named if cause not in found)
            named.update(near)
            if near:
                lines.append(Evidence(rank, "process", f"not {', '.join(near)}: {fact.truth(view, last)}"))
    return tuple(lines)


def _in_call(view: RankView, syscall: str, channel: str, state: str = "S") -> RankView:
    """The rank, if its thread were in another system call."""
    samples = view.capture.processes

    def moved(sample: ProcessSample) -> ProcessSample:
        return with_fields(sample, syscall=syscall, wait_channel=channel, blocked_on=None, state=state)

    processes = (*samples[:-2], *map(moved, samples[-2:]))
    return replace(view, capture=with_fields(view.capture, processes=processes))


def _computing(view: RankView) -> RankView:
    return replace(_in_call(view, "", "", "R"), motion=Motion("busy", view.motion.window_s, 1.0, None, False))


def _where(sample: ProcessSample) -> str:
    return f"it is in {sample.syscall}()" if sample.syscall else f"it is in {sample.wait_channel or 'a call unknown'}"


def _still(view: RankView, _: ProcessSample) -> str:
    return f"it does not move, and used {view.motion.cpu_share or 0.0:.0%} of a core over {view.motion.window_s:.1f} s"


def _no_file(_: RankView, last: ProcessSample) -> str:
    return f"{_where(last)}, and no file, pipe or connection is known that it is blocked on"


def _no_lock(_: RankView, last: ProcessSample) -> str:
    return f"{_where(last)}, which is no wait for a lock"


def _no_child(_: RankView, last: ProcessSample) -> str:
    children = ", ".join(f"{child.pid} ({child.name})" for child in last.children[:_SHOWN])
    return f"{_where(last)}, which is no wait for its child process {children}"


_FACTS = (
    _Fact(lambda view: _in_call(view, "read", "pipe_read"), _no_file),
    _Fact(_computing, _still),
    _Fact(lambda view: _in_call(view, "futex", "futex_wait_queue"), _no_lock),
    _Fact(lambda view: _in_call(view, "wait4", "do_wait"), _no_child, lambda last: bool(last.children)),
)
