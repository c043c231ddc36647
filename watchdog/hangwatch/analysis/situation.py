"""What the ranks of a capture do and who waits for whom, in one value: what the comparison of call paths looks at. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from hangwatch.analysis.motion.samples import still_since_ns
from hangwatch.analysis.operations.alignment import History
from hangwatch.analysis.places import source_lines, user_frame
from hangwatch.analysis.ranks.connecting import connects_since_ns
from hangwatch.analysis.ranks.file_locks import is_blocked_by_file
from hangwatch.analysis.ranks.views import RankView
from hangwatch.analysis.waiting.blame import Blame
from hangwatch.analysis.waiting.graph import WaitGraph, describe_waits
from hangwatch.model.capture import Capture
from hangwatch.model.collectives import Operation
from hangwatch.model.incident import SourceLine
from hangwatch.model.stacks import Frame, once_a_stack

#: The frames of asyncio (CPython 3.10 to 3.14) and of uvloop under which tasks run.
_LOOPS = ("asyncio/runners.py", "asyncio/base_events.py", "uvloop/")


def find_awaited(view: RankView) -> tuple[Frame, ...]:
    """Return the stack of a task in user code, if the thread is in an event loop that runs none of it; else nothing.

    Of several tasks it is the first. The stack is deepest first.
    """
    above = next((i for i, f in enumerate(view.frames) if any(part in f.file for part in _LOOPS)), None)
    if above is None or user_frame(view.frames[:above]) is not None:
        return ()
    return next((t.frames for t in view.capture.tasks if user_frame(t.frames) is not None), ())


#: How many of a rank's last collectives are compared with the others' (at least, at most), and how many operations in all.
_FEWEST_ALIKE, _MOST_ALIKE, _COMPARED = 8, 48, 1 << 16


@dataclass(frozen=True)
class Situation:
    """One capture, analysed rank by rank. ``world`` is every global rank the job has, seen or not."""

    capture: Capture
    views: Mapping[int, RankView]
    world: tuple[int, ...]
    history: History
    graph: WaitGraph
    blame: Blame

    @property
    def seen_culprits(self) -> list[tuple[int, RankView]]:
        """The culprits that were seen, each with its view."""
        return [(rank, self.views[rank]) for rank in self.blame.culprits if rank in self.views]

    @property
    def operation(self) -> Operation | None:
        """The operation that most of the waiting ranks have as their frontier; if several, the oldest; None if none."""
        ranks = self.blame.waiting or self.blame.culprits
        fronts = [o for r in ranks if r in self.views and (o := self.views[r].frontier) is not None]
        count = Counter((o.group.key, o.seq) for o in fronts)
        return min(fronts, key=lambda o: (-count[(o.group.key, o.seq)], o.created_ns), default=None)

    @cached_property
    def diverged(self) -> bool:
        """True if both sides are in, or have just gone through, operations that do not meet."""
        blame = self.blame
        if not blame.culprits:
            return False
        if blame.shape == "cycle" and all(e.reason == "answer" for e in self.graph.within(blame.component)):
            return False  # they wait outside of all operations
        if blame.shape == "cycle" or (blame.diverged_at is not None and blame.diverged_at.mismatch):
            return True
        # A culprit that waits in an operation of its own is in the wrong one, and not stuck outside of all.
        return any(view.state == "waiting" and not view.waits_for_no_rank for _, view in self.seen_culprits)

    @property
    def onset_ns(self) -> int | None:
        """When the oldest operation of the waiting ranks was enqueued (wall clock, ns); None if none is recorded."""
        if self.blame.shape == "lingering":
            return None  # its operation is what a rank was in when it died
        ranks = self.blame.waiting or self.blame.culprits
        return min((o.created_ns for r in ranks if r in self.views and (o := self.views[r].frontier)), default=None)

    @property
    def still_since_ns(self) -> int | None:
        """Since when a waiting rank without a recorded operation has not moved (wall clock, ns); None if unknown."""
        if self.blame.shape in {"blocked", "lingering"}:  # no rank waits; as long as one of them moved, the job went on
            still = [view_still_since_ns(v) for v in self.views.values() if not v.gone]
            known = [ns for ns in still if ns is not None]
            return max(known) if len(known) == len(still) else None
        views = (self.views[r] for r in self.blame.waiting or self.blame.culprits if r in self.views)
        since = (view_still_since_ns(v) for v in views if v.frontier is None)
        return min((ns for ns in since if ns is not None), default=None)

    def place(self, rank: int) -> str:
        """Return where a rank waits, for people: ``all_gather of default_pg (sequence number 12)``."""
        view = self.views[rank]
        if view.frontier is not None:
            kind = "" if view.frontier.p2p else f" (sequence number {view.frontier.seq})"
            return f"{view.frontier.op} of {view.frontier.group.label}{kind}"
        if view.wait is not None:
            return "a store read" if view.wait.kind == "store" else view.wait.op
        return "a request" if view.in_request else view.state

    def waits(self) -> tuple[str, ...]:
        """Return who waits for whom, one line for each kind of wait."""
        return (*describe_waits(self.graph, self.place), *self._elsewhere())

    def _elsewhere(self) -> Iterator[str]:
        """Yield a line for each culprit that waits for something on another node, or for Ray tasks."""
        for rank, view in self.seen_culprits:
            if view.wait is not None or view.sample is None:
                continue
            if view.sample.elsewhere:
                yield (
                    f"rank {rank} waits for {view.sample.elsewhere} on another node; the other end is not "
                    "visible from here"
                )
            if view.sample.tasks:
                tasks = ", ".join(view.sample.tasks)
                yield f"rank {rank} waits for Ray tasks; these are not done: {tasks}"

    def side_frames(self, rank: int) -> tuple[Frame, ...]:
        """Return a rank's call path at the divergence: the recorded call site of its operation, else its stack now.

        On NCCL the host goes on: what it is in now was called after the operation that hangs. A record may lack the
        call site of this operation, as a backward pass calls from a thread of torch's own; then that of the next one is
        nearest.
        """
        diverged_at = self.blame.diverged_at
        if diverged_at is not None and diverged_at.mismatch:
            own = self.history.at(diverged_at.group.key, diverged_at.seq).get(rank)
            if own is not None and own.frames:
                return own.frames
        view = self.views.get(rank)
        if view is None:
            return ()
        front = view.frontier
        if front is None or not (self.ran_ahead(rank) or not view.frames):
            return view.frames
        return front.frames or next((o.frames for o in view.pending[1:] if o.frames), None) or view.frames

    def ran_ahead(self, rank: int) -> bool:
        """True if the host of a waiting rank may have gone on from the call that its device waits in."""
        view = self.views.get(rank)
        front = view.frontier if view is not None and not view.waits_for_no_rank else None
        return front is not None and front.backend not in {"gloo", ""}

    def last_call(self, rank: int) -> Operation | None:
        """Return the last recorded operation with a call site, if the rank has no stack and nothing pending; else None."""
        view = self.views.get(rank)
        if view is None or view.frames or view.frontier is not None:
            return None
        return next((o for o in reversed(self.history.of(rank)) if o.frames), None)

    @cached_property
    def representatives(self) -> tuple[int | None, int | None]:
        """Return one culprit and one of the other ranks, whose lines are shown; on a tie, two ranks of different sides."""
        culprits, others = self.blame.culprits, self.blame.waiting
        diverged_at = self.blame.diverged_at
        # Of several faults at once, show the one whose divergence is shown.
        apart = {r for side in diverged_at.sides for r in side.ranks} if diverged_at else set()
        # Choose among culprits by their place, so that the order of ranks does not decide.
        seen = sorted((r for r, _ in self.seen_culprits), key=lambda r: (r not in apart, self._path(r), r))
        culprit = next(iter(seen), None)
        alike = self._likeness(culprit) if culprit is not None else {}
        # If all waiting leads to an unseen process, show a rank that waits for it: the others wait for that rank.
        last = {r for e in self.graph.leaving for r in e.waiters} if not culprits else set()
        # Of ranks in the same role, show one that is still where they diverged: its live stack tells more than the record.
        key = lambda r: (r not in last, r not in apart, self._has_passed(r), -alike.get(r, 0), -self._frames_kept(r), r)  # noqa: E731
        shown = sorted((r for r in others if r in self.views), key=key)
        other = next(iter(shown), None)
        if culprit in apart and other not in apart and diverged_at is not None and apart <= set(culprits):
            other = None  # the two sides are both to blame, and the others wait for both
        if culprit is not None and other is None and self.blame.shape != "blocked":
            culprit_side = diverged_at.side_of(culprit) if diverged_at else None
            rest = [r for r in culprits if r != culprit and r in self.views]
            other = next((r for r in rest if culprit_side is None or r not in culprit_side.ranks), None)
        return culprit, other

    def _has_passed(self, rank: int) -> bool:
        """True if a rank has completed the operation in which others of its side wait: what it is in now came later."""
        at = self.blame.diverged_at
        here = self.history.at(at.group.key, at.seq).get(rank) if at is not None and not at.mismatch else None
        return here is not None and here.completed

    def _path(self, rank: int) -> tuple[tuple[str, int], ...]:
        return _lines_of(self.side_frames(rank))

    def _frames_kept(self, rank: int) -> int:
        """Return how many frames, from the outermost on, the rank's stack still shares with its path at the divergence."""
        now = _lines_of(self.views[rank].frames)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._path(rank), now, strict=False)))

    def _likeness(self, culprit: int) -> Mapping[int, int]:
        """Return in how many of the culprit's last collectives each other rank has taken part in the same role."""
        alike: Counter[int] = Counter()
        # In a large job fewer are enough: there are more ranks in each role.
        last = max(_FEWEST_ALIKE, min(_MOST_ALIKE, _COMPARED // len(self.world)))
        for own in self.history.of(culprit)[-last:]:
            if not own.p2p:
                role = (own.op, own.input_sizes, own.output_sizes)
                here = self.history.at(own.group.key, own.seq).kinds()
                alike.update(r for r, o in here if (o.op, o.input_sizes, o.output_sizes) == role)
        return alike

    def lines(self) -> tuple[SourceLine | None, SourceLine | None]:
        """Return the user's line on each side; of an event loop that waits, the line of the task that it waits in."""
        culprit, other = self.representatives
        ours = self.side_frames(culprit) if culprit is not None else ()
        if culprit is not None and ours == self.views[culprit].frames:
            ours = (*find_awaited(self.views[culprit]), *ours)
        return source_lines(ours, self.side_frames(other) if other is not None else ())


@once_a_stack
def _lines_of(frames: Sequence[Frame]) -> tuple[tuple[str, int], ...]:
    return tuple((f.file, f.line) for f in reversed(frames))


def view_still_since_ns(view: RankView) -> int | None:
    """Return since when a rank has not moved, by its samples (wall clock, ns); None if that is not known."""
    # Rank 0 polls every 10 ms whether all have joined its store, and a rank that wants a lock file polls too. NCCL's host code
    # polls until all have come when a communicator is made or split.
    wait = view.wait
    polls = wait is not None and (wait.kind in {"initialization", "group_creation", "communicator"} or wait.connecting)
    called_ns = connects_since_ns(view.capture, wait, view.pending, view.ident) if view.settled else None
    begun_ns = view.held_since_ns if called_ns is None else called_ns
    since_ns = still_since_ns(view.capture, polls=polls or is_blocked_by_file(view) or begun_ns is not None)
    return since_ns if since_ns is None or begun_ns is None else max(since_ns, begun_ns)
