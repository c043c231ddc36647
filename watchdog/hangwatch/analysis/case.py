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
from hangwatch.analysis.operations.backends import apart_by_backend
from hangwatch.analysis.operations.records import without_torn_records
from hangwatch.analysis.ranks.joining import NONE_ASIDE, Aside, view_ranks
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
    """A situation, and what takes longer to find: each is found once, when it is first asked for.

    ``aside``: threads of its ranks that were not looked at.
    """

    aside: Aside = field(default_factory=dict)

    @cached_property
    def paths(self) -> PathDivergence | None:
        """How the call paths of the culprits' side and the others' relate; None where one of the two is not known."""
        return find_divergence(self)

    @property
    def divergence(self) -> PathDivergence | None:
        """The same, where the two sides are in operations that do not meet; None where they are not."""
        return self.paths if self.diverged else None

    @property
    def fork(self) -> Fork | None:
        """Where in the program they diverged; None where they did not, or that is not known."""
        return self.divergence.fork if self.divergence is not None else None

    @property
    def loop(self) -> Loop | None:
        """The loop that only one of them is in still, seen from that side; None where the fork is no such one."""
        return self.divergence.loop if self.divergence is not None else None

    @cached_property
    def idleness(self) -> Idleness | None:
        """Whether all that any rank waits for is work from outside; None where some of it is not."""
        return find_idleness(self)


def world_of(capture: Capture, views: Mapping[int, RankView]) -> tuple[int, ...]:
    """All processes of the job, ascending: its world size, or the size given to ``init_process_group``, and every one seen."""
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
    aside: Aside = NONE_ASIDE,
) -> Case:
    """Analyse a capture. Operations in flight for less than ``min_wait_s`` seconds are no waits yet.

    ``motion_window_s``: how far back a rank must not have moved to be called stuck (None: as far as samples reach).
    ``before``: the case of the same capture, with the same window, when some of its ranks showed less; what is known of
    the others is not found out again. ``aside``: threads that are not looked at.
    """
    capture = apart_by_backend(without_torn_records(capture))
    since_ns = 0 if motion_window_s is None else int(capture.at_ns - motion_window_s * 1e9)
    known = before.views if before is not None and before.aside == aside else {}
    views = view_ranks(capture, since_ns, known, aside)
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
            return False  # it goes from one to the next, and none of them is in flight by the recorder
        if _has_gone_on(view):
            return False
        since = view_still_since_ns(view)
        return since is None or capture.at_ns - since >= min_wait_s * 1e9

    waiting = frozenset(r for r, v in views.items() if waits(v))
    answers = {r: server for r, server in find_answers(views).items() if r not in waiting}
    # What a process beside the job does is its own matter, as long as none of the job waits for it.
    reached = find_reached(views, answers, world)
    waiting &= reached
    answers = {r: server for r, server in answers.items() if r in reached}
    if not waiting and any(r not in answers for r in views if not is_guest(r)):
        answers = {}  # as long as one rank goes on, none of them holds up another
    graph = build_graph(views, history, world, waiting, answers)
    blame = assign_blame(views, history, graph, waiting | answers.keys(), world)
    return Case(capture, views, world, history, graph, blame, aside)


def _has_gone_on(view: RankView) -> bool:
    """Whether a rank's stack is of before its record, or both of before its beat: what it waited for there has come.

    On Gloo each is on record from its call on, which returns at once: a rank waits for its work. NCCL connects in the call.
    """
    flight, wait = view.capture.flight, view.wait
    recorded = flight.operations if flight is not None else ()
    if flight is None or wait is None or not len(recorded):
        return False
    last, stacks = recorded[-1], view.capture.stacks[-2:]
    # A stack is dated when it has been read: what it shows may be of just before. So the one before it counts.
    own = last.thread == view.ident if last.thread else view.alone
    if flight.source != "file" and stacks and own and last.created_ns > stacks[0].at_ns:
        return True
    if wait.kind not in {"collective", "work"} or not wait.awaits_work:
        return False
    if last.backend == "gloo" and last.completed and last.op == wait.op:
        return True
    # In flight by the record, and none of them by the beat after it.
    return not view.pending and any(o.thread in {0, view.ident} for o in in_flight(recorded))


def _seen_at_ns(capture: Capture, view: RankView) -> int:
    """When a rank was looked at, by the clock that its operations go by: a dump's is that of the host it comes from."""
    flight = view.capture.flight
    return flight.at_ns if flight is not None and flight.source == "file" else capture.at_ns
