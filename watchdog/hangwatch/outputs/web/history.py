"""The last minutes of every group's front, for the page to draw. May import the model and the HTML's values."""

from __future__ import annotations

from collections import deque

from hangwatch.model.live import LiveView
from hangwatch.outputs.html.group_progress import FrontPoint

#: Ten minutes, a point every other second; groups beyond the limit are not drawn, so not kept either.
_POINTS, _EVERY_S = 300, 2.0
_MAX_GROUPS = 64


class History:
    """What was seen of the jobs that still run. The past of a job is gone with it."""

    def __init__(self) -> None:
        self._jobs: dict[str, dict[str, deque[FrontPoint]]] = {}

    def remember(self, view: LiveView) -> None:
        """Add what ``view`` shows, unless the last is younger than two seconds."""
        at_s = view.at_ns / 1e9
        self._jobs = {job.id: self._jobs.get(job.id, {}) for job in view.jobs}
        for job in view.jobs:
            known = self._jobs[job.id]
            for group in job.groups:
                if group.label not in known and len(known) >= _MAX_GROUPS:
                    continue
                points = known.setdefault(group.label, deque(maxlen=_POINTS))
                if not points or at_s - points[-1].at_s >= _EVERY_S * 0.9:
                    points.append(FrontPoint(at_s, group.front, group.slowest))

    def points(self) -> dict[str, dict[str, tuple[FrontPoint, ...]]]:
        """By job and group, oldest first."""
        return {job: {label: tuple(points) for label, points in known.items()} for job, known in self._jobs.items()}
