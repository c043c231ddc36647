"""The progress of every job and process group over the last minutes. May import the model and the HTML values."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hangwatch.model.live import LiveJob, LiveView
from hangwatch.outputs.html.group_progress import JobPace, JobProgress, ProgressPoint

#: Ten minutes with a point every two seconds; groups beyond the limit have no chart, so they are not kept.
_POINTS, _EVERY_S = 300, 2.0
_MAX_GROUPS = 64
#: A pace is a mean of so many seconds: longer than a step of most jobs, short enough to follow one that slows down.
_PACE_S = 60.0


@dataclass(frozen=True)
class _Total:
    """What all ranks together have called and completed. Sums of different ``ranks`` cannot be compared."""

    at_s: float
    ranks: int
    enqueued: int
    completed: int


@dataclass
class _Job:
    groups: dict[str, deque[ProgressPoint]] = field(default_factory=dict)
    totals: deque[_Total] = field(default_factory=lambda: deque(maxlen=int(_PACE_S / _EVERY_S)))
    last: _Total | None = None
    moved_at_s: float = 0.0

    def remember(self, job: LiveJob, at_s: float) -> None:
        for group in job.groups:
            if group.label not in self.groups and len(self.groups) >= _MAX_GROUPS:
                continue
            points = self.groups.setdefault(group.label, deque(maxlen=_POINTS))
            if _is_due(points, at_s):
                points.append(ProgressPoint(at_s, group.front, group.slowest))
        enqueued = sum(group.enqueued for rank in job.ranks for group in rank.groups)
        completed = sum(group.completed for rank in job.ranks for group in rank.groups)
        last, now = self.last, _Total(at_s, len(job.ranks), enqueued, completed)
        if last is not None and (last.ranks != now.ranks or last.enqueued > now.enqueued):
            self.totals.clear()  # a rank has come or gone, or the job has started again
        if last is None or (last.enqueued, last.completed) != (now.enqueued, now.completed):
            self.moved_at_s = at_s
        if _is_due(self.totals, at_s):
            self.totals.append(now)
        self.last = now

    def pace(self) -> JobPace:
        if self.last is None:
            return JobPace()
        first, last = self.totals[0], self.totals[-1]
        rank_seconds = (last.at_s - first.at_s) * last.ranks
        return JobPace(
            per_s=(last.enqueued - first.enqueued) / rank_seconds if rank_seconds else None,
            still_s=self.last.at_s - self.moved_at_s,
        )


def _is_due(points: deque[ProgressPoint] | deque[_Total], at_s: float) -> bool:
    return not points or at_s - points[-1].at_s >= _EVERY_S * 0.9


class ProgressHistory:
    """The progress of running jobs. The history of a job is dropped when it ends."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}

    def remember(self, view: LiveView) -> None:
        """Add a point from ``view``, unless the last one is younger than two seconds."""
        self._jobs = {job.id: self._jobs.get(job.id, _Job()) for job in view.jobs}
        for job in view.jobs:
            self._jobs[job.id].remember(job, view.at_ns / 1e9)

    def progress(self) -> dict[str, JobProgress]:
        """Return the progress of each job, by its id."""
        return {
            job: JobProgress({label: tuple(points) for label, points in known.groups.items()}, known.pace())
            for job, known in self._jobs.items()
        }
