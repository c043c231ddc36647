"""The case: everything the analysis found in a capture, in one value. What cause rules look at. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hangwatch.analysis.divergence.find import PathDivergence, find_divergence
from hangwatch.analysis.divergence.loop import Loop
from hangwatch.analysis.divergence.relate import Fork
from hangwatch.analysis.idle import Idleness, find_idleness
from hangwatch.analysis.operations.alignment import History
from hangwatch.analysis.operations.records import apart_by_backend, without_torn_records
from hangwatch.analysis.ranks.joining import NONE_EXCLUDED, ExcludedThreads, view_ranks
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.situation import Situation, view_still_since_ns
from hangwatch.analysis.waiting.answers import find_answers
from hangwatch.analysis.waiting.blame import assign_blame
from hangwatch.analysis.waiting.edges import build_graph
from hangwatch.analysis.waiting.stores import find_reached
from hangwatch.model.capture import Capture
from hangwatch.model.collectives import in_flight
from hangwatch.model.numbers import is_guest


@dataclass(frozen=True)
class Case(Situation):
    """A situation, and what takes longer to find: each property is found once, when it is first asked for.

    ``excluded``: threads of its ranks that were left out.
    """

    excluded: ExcludedThreads = field(default_factory=dict)

    @cached_property
    def paths(self) -> PathDivergence | None:
        """Return how the call paths of the culprits and of the other ranks relate; None if one of the two is not known."""
        return find_divergence(self)

    @property
    def divergence(self) -> PathDivergence | None:
        """``paths`` if the two sides are in operations that do not meet, else None."""
        return self.paths if self.diverged else None

    @property
    def fork(self) -> Fork | None:
        """Where in the program the two sides diverged; None if they did not, or if it is not known."""
        return self.divergence.fork if self.divergence is not None else None

    @property
    def loop(self) -> Loop | None:
        """The loop that only one of the two sides is still in, seen from that side; None if they diverged in another way."""
        return self.divergence.loop if self.divergence is not None else None

    @cached_property
    def idleness(self) -> Idleness | None:
        """Return how sure it is that every waiting rank waits for work from outside; None if one does not."""
        return find_idleness(self)


def world_of(capture: Capture, views: Mapping[int, RankView]) -> tuple[int, ...]:
    """Return all ranks of the job, ascending: those below its world size, announced or launched, and all seen."""
    own = (v for rank, v in views.items() if not is_guest(rank))
    declared = [v.wait.world_size for v in own if v.wait is not None and v.wait.world_size is not None]
    size = max((capture.job.world_size or 0, *declared))
    return tuple(sorted(set(range(size)) | {c.rank for c in capture.ranks}))


def build_case(
    capture: Capture,
    *,
    min_wait_s: float = 0.0,
    motion_window_s: float | None = None,
    before: Case | None = None,
    excluded: ExcludedThreads = NONE_EXCLUDED,
) -> Case:
    """Return the analysis of a capture. An operation in flight for less than ``min_wait_s`` seconds is no wait yet.

    ``motion_window_s``: how far back, in seconds, a rank must not have moved to be called stuck (None: as far as
    samples reach). ``before``: an earlier case of the same capture and the same window, when some of its ranks showed
    less. The views of the other ranks are taken from it. ``excluded``: threads that are left out.
    """
    capture = apart_by_backend(without_torn_records(capture))
    since_ns = 0 if motion_window_s is None else int(capture.at_ns - motion_window_s * 1e9)
    known = before.views if before is not None and before.excluded == excluded else {}
    views = view_ranks(capture, since_ns, known, excluded)
    history = History(capture.ranks)
    world = world_of(capture, views)

    def waits(view: RankView) -> bool:
        if view.waits_for_no_rank:
            return False
        if view.frontier is not None:
            return _seen_at_ns(capture, view) - view.frontier.created_ns >= min_wait_s * 1e9
        if view.wait is None:
            return False
        if view.wait.kind == "collective" and view.capture.progress is not None and view.motion.frames_changed:
            return False  # it goes from one collective to the next, and none is in flight by the recorder
        if _has_gone_on(view):
            return False
        since = view_still_since_ns(view)
        return since is None or capture.at_ns - since >= min_wait_s * 1e9

    waiting = frozenset(r for r, v in views.items() if waits(v))
    answers = {r: server for r, server in find_answers(views).items() if r not in waiting}
    # What a process beside the job does only matters if a rank of the job waits for it.
    reached = find_reached(views, answers, world)
    waiting &= reached
    answers = {r: server for r, server in answers.items() if r in reached}
    # A server among the ranks, which does not move, does not go on.
    held = {r for r in answers.values() if views[r].motion.state in {"stuck", "stopped"}} | answers.keys()
    if not waiting and any(r not in held for r in views if not is_guest(r)):
        answers = {}  # as long as one rank goes on, none of them holds up another
    graph = build_graph(views, history, world, waiting, answers)
    blame = assign_blame(views, history, graph, waiting | answers.keys(), world)
    return Case(capture, views, world, history, graph, blame, excluded)


def _has_gone_on(view: RankView) -> bool:
    """True if what the rank's stack waits for has come: its record is newer than the stack, or its beat newer than both.

    On Gloo each call is on record and returns at once, and the rank then waits for its work. NCCL connects in the call.
    """
    flight, wait = view.capture.flight, view.wait
    recorded = flight.operations if flight is not None else ()
    if flight is None or wait is None or not len(recorded):
        return False
    last, stacks = recorded[-1], view.capture.stacks[-2:]
    # A stack is dated after it was read, so what it shows may be older: the date of the one before it counts.
    own = last.thread == view.ident if last.thread else view.alone
    if flight.source != "file" and stacks and own and last.created_ns > stacks[0].at_ns:
        return True
    if wait.kind not in {"collective", "work"} or not wait.awaits_work:
        return False
    if last.backend == "gloo" and last.completed and last.op == wait.op:
        return True
    # In flight by the record, but not by the beat, which is newer.
    return not view.pending and any(o.thread in {0, view.ident} for o in in_flight(recorded))


def _seen_at_ns(capture: Capture, view: RankView) -> int:
    """Return when a rank was captured, by the clock of its operations: that of the dump's host if its record is a dump."""
    flight = view.capture.flight
    return flight.at_ns if flight is not None and flight.source == "file" else capture.at_ns
