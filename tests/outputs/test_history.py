"""What the page keeps of the past: enough to draw, of jobs that are there, and never without bound."""

from __future__ import annotations

from hangwatch.model.live import LiveJob, LiveView
from hangwatch.model.progress import GroupFront
from hangwatch.outputs.web.history import ProgressHistory


def view(at_s: float, *jobs: str, groups: int = 1, front: int = 5) -> LiveView:
    """Jobs whose groups have reached ``front``."""
    fronts = tuple(GroupFront(f"group {number}", (0, 1), front, front - 1, 0) for number in range(groups))
    return LiveView(int(at_s * 1e9), tuple(LiveJob(job, groups=fronts) for job in jobs))


def test_a_point_is_kept_every_other_second() -> None:
    """Looked at each second, the line has a point for two of them, with the first and the last rank's numbers."""
    history = ProgressHistory()
    for second in range(7):
        history.remember(view(second, "llama", front=second))
    points = history.points()["llama"]["group 0"]
    assert [(p.at_s, p.fastest, p.slowest) for p in points] == [(0, 0, -1), (2, 2, 1), (4, 4, 3), (6, 6, 5)]


def test_the_past_of_a_job_goes_with_it() -> None:
    """A job that is gone and comes back under the same name begins anew."""
    history = ProgressHistory()
    history.remember(view(0, "llama", "bert"))
    history.remember(view(2, "bert"))
    assert set(history.points()) == {"bert"}
    history.remember(view(4, "llama", "bert"))
    assert len(history.points()["llama"]["group 0"]) == 1


def test_memory_is_bounded() -> None:
    """Ten minutes of 64 groups are kept, however long a job runs and however many it has."""
    history = ProgressHistory()
    for second in range(0, 2000, 2):
        history.remember(view(second, "llama", groups=200))
    points = history.points()["llama"]
    assert len(points) == 64
    assert {len(one) for one in points.values()} == {300}
    assert points["group 0"][-1].at_s == 1998
