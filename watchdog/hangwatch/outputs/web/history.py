"""The progress of every process group over the last minutes, for the charts. May import the model and the HTML values."""

from __future__ import annotations

from collections import deque

from hangwatch.model.live import LiveView
from hangwatch.outputs.html.group_progress import ProgressPoint

#: Ten minutes with a point every two seconds; groups beyond the limit have no chart, so they are not kept.
_POINTS, _EVERY_S = 300, 2.0
_MAX_GROUPS = 64


class ProgressHistory:
    """The progress of running jobs. The history of a job is dropped when it ends."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, deque[ProgressPoint]]] = {}

    def remember(self, view: LiveView) -> None:
        """Add a point from ``view``, unless the last one is younger than two seconds."""
        at_s = view.at_ns / 1e9
        self._jobs = {job.id: self._jobs.get(job.id, {}) for job in view.jobs}
        for job in view.jobs:
            known = self._jobs[job.id]
            for group in job.groups:
                if group.label not in known and len(known) >= _MAX_GROUPS:
                    continue
                points = known.setdefault(group.label, deque(maxlen=_POINTS))
                if not points or at_s - points[-1].at_s >= _EVERY_S * 0.9:
                    points.append(ProgressPoint(at_s, group.front, group.slowest))

    def points(self) -> dict[str, dict[str, tuple[ProgressPoint, ...]]]:
        """By job and group, oldest first."""
        return {job: {label: tuple(points) for label, points in known.items()} for job, known in self._jobs.items()}
