"""What the page keeps of the past: enough to draw, of jobs that are there, and never without bound."""

from __future__ import annotations

from hangwatch.model.live import LiveJob, LiveRank, LiveView
from hangwatch.model.progress import GroupFront, LiveProgress
from hangwatch.outputs.html.group_progress import JobPace
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
    points = history.progress()["llama"].groups["group 0"]
    assert [(p.at_s, p.fastest, p.slowest) for p in points] == [(0, 0, -1), (2, 2, 1), (4, 4, 3), (6, 6, 5)]


def test_the_past_of_a_job_goes_with_it() -> None:
    """A job that is gone and comes back under the same name begins anew."""
    history = ProgressHistory()
    history.remember(view(0, "llama", "bert"))
    history.remember(view(2, "bert"))
    assert set(history.progress()) == {"bert"}
    history.remember(view(4, "llama", "bert"))
    assert len(history.progress()["llama"].groups["group 0"]) == 1


def test_memory_is_bounded() -> None:
    """Ten minutes of 64 groups are kept, however long a job runs and however many it has."""
    history = ProgressHistory()
    for second in range(0, 2000, 2):
        history.remember(view(second, "llama", groups=200))
    points = history.progress()["llama"].groups
    assert len(points) == 64
    assert {len(one) for one in points.values()} == {300}
    assert points["group 0"][-1].at_s == 1998


def ranks_at(at_s: float, *enqueued: int) -> LiveView:
    """A job whose ranks have called so many collectives."""
    ranks = tuple(
        LiveRank(rank, "n", rank, "running", groups=(LiveProgress("0", "dp", (), number, number),))
        for rank, number in enumerate(enqueued)
    )
    return LiveView(int(at_s * 1e9), (LiveJob("llama", ranks=ranks),))


def pace_of(*views: LiveView) -> JobPace:
    """The pace after a page has seen these, in this order."""
    history = ProgressHistory()
    for one in views:
        history.remember(one)
    return history.progress()["llama"].pace


def test_a_pace_is_that_of_the_last_minute() -> None:
    """A job that was fast and is slow is called slow a minute later, and so is the mean of its ranks."""
    fast = [ranks_at(second, 100 * second, 100 * second) for second in range(0, 61)]
    slow = [ranks_at(61 + second, 6100 + second, 6100) for second in range(0, 121)]
    assert pace_of(*fast).per_s == 100.0
    assert pace_of(*fast, *slow).per_s == 0.5
    assert pace_of(fast[0]).per_s is None


def test_a_job_that_stands_says_for_how_long() -> None:
    """From the last observation in which any rank had moved."""
    moving = [ranks_at(second, second, 0) for second in range(10)]
    assert pace_of(*moving).still_s == 0.0
    assert pace_of(*moving, *(ranks_at(second, 9, 0) for second in range(10, 31))).still_s == 21.0


def test_numbers_of_other_ranks_are_not_compared() -> None:
    """A rank that comes brings its count with it; a job that starts again counts from nothing: neither is a pace."""
    assert pace_of(ranks_at(0, 1000), ranks_at(2, 1002, 1002), ranks_at(4, 1004, 1004)).per_s == 1.0
    assert pace_of(ranks_at(0, 1000), ranks_at(2, 0), ranks_at(4, 2)).per_s == 1.0
