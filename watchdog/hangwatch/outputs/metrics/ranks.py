"""Metrics of jobs and ranks: progress in each process group, and state. Pure; may import prometheus_client.

Sequence numbers are gauges, not counters: they are positions that are compared between ranks (``max - min``), start at any
value, and go back when a job restarts, which ``rate()`` would count as progress.

The number of series per job is bounded: ``RANKS_LIMIT`` ranks, ``PAIRS_LIMIT`` pairs of rank and group. Groups are dropped
as a whole (numbers of only some members would mislead), and dropped series are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import Metric

from hangwatch.model.live import LiveRank
from hangwatch.model.progress import GroupFront, LiveProgress, find_front
from hangwatch.model.text import title_job
from hangwatch.outputs.metrics.families import gauge, label
from hangwatch.outputs.metrics.view import JobMetrics

#: Of a job on one node. A node with 8 GPUs and 50 groups a rank has 400 pairs.
RANKS_LIMIT = 1000
PAIRS_LIMIT = 1000
#: Groups with an operation in flight for longer than this are shown before all others.
_SLOW_S = 5.0

_Row = tuple[LiveRank, str, LiveProgress]


def rank_families(jobs: Sequence[JobMetrics]) -> Iterator[Metric]:
    """Yield the families of all jobs."""
    yield from _job_families(jobs)
    info = gauge("rank_info", "Node and process of the rank; always 1.", ("job_id", "rank", "node", "pid"))
    state = gauge("rank_state", "Current state of the rank; always 1.", ("job_id", "rank", "state"))
    beat_age = gauge("rank_heartbeat_age_seconds", "Age of the last heartbeat of the rank's probe.", ("job_id", "rank"))
    for job in jobs:
        name = label(job.job.id)
        for one in _shown_ranks(job):
            rank = label(one.called)
            info.add_metric([name, rank, label(one.node), str(one.pid)], 1)
            state.add_metric([name, rank, label(one.state)], 1)
            if one.beat_age_s is not None:
                beat_age.add_metric([name, rank], one.beat_age_s)
    yield from (info, state, beat_age)
    yield from _collective_families(jobs)


def _job_families(jobs: Sequence[JobMetrics]) -> Iterator[Metric]:
    known = ("name", "script", "user", "slurm_job", "job_namespace", "job_pod", "launcher")
    info = gauge(
        "job_info", "A watched job: what it is called, and where to look for it; always 1.", ("job_id", *known)
    )
    world = gauge("job_world_ranks", "World size of the job, over all nodes.", ("job_id",))
    stall_after = gauge("job_stall_after_seconds", "Seconds before an unproven hang is reported now.", ("job_id",))
    for job in jobs:
        name = label(job.job.id)
        one = job.job
        texts = (
            title_job(one.id, one.name, one.script),
            one.script,
            one.user,
            one.slurm_job,
            one.namespace,
            one.pod,
            one.launcher,
        )
        info.add_metric([name, *map(label, texts)], 1)
        if one.world_size is not None:
            world.add_metric([name], one.world_size)
        if job.patience_s is not None:
            stall_after.add_metric([name], job.patience_s)
    yield from (info, world, stall_after)


def _collective_families(jobs: Sequence[JobMetrics]) -> Iterator[Metric]:
    where = ("job_id", "rank", "group")
    enqueued = gauge("collective_enqueued", "Sequence number of the rank's last enqueued collective.", where)
    completed = gauge("collective_completed", "Sequence number of the rank's last completed collective.", where)
    behind = gauge("collective_behind", "Collectives the rank is behind the fastest rank on this node.", where)
    in_flight = gauge("collective_in_flight_seconds", "Age of the rank's oldest operation in flight.", where)
    size = gauge("group_ranks", "Ranks in the process group.", ("job_id", "group"))
    left_out = gauge("job_series_left_out", "Ranks, and pairs of rank and group, that are not exported.", ("job_id",))
    for job in jobs:
        name, rows = label(job.job.id), _rows(job)
        shown, fronts = _bounded(rows)
        for one, group_label, group in shown:
            labels = [name, label(one.called), group_label]
            enqueued.add_metric(labels, group.enqueued)
            completed.add_metric(labels, group.completed)
            behind.add_metric(labels, fronts[group_label].behind_by(group))
            if group.in_flight_s is not None:
                in_flight.add_metric(labels, group.in_flight_s)
        for group_label, front in fronts.items():
            size.add_metric([name, group_label], len(front.ranks))
        left_out.add_metric([name], len(rows) - len(shown) + max(0, len(job.ranks) - RANKS_LIMIT))
    yield from (enqueued, completed, behind, in_flight, size, left_out)


def _shown_ranks(job: JobMetrics) -> tuple[LiveRank, ...]:
    return job.ranks[:RANKS_LIMIT]


def _rows(job: JobMetrics) -> list[_Row]:
    return [(one, text, group) for one in _shown_ranks(job) for text, group in _labelled(one.groups)]


def _labelled(groups: tuple[LiveProgress, ...]) -> Iterator[tuple[str, LiveProgress]]:
    """Yield each group with a unique label: Prometheus refuses a scrape in which a series occurs twice."""
    taken: dict[str, int] = {}
    for group in groups:
        text = label(group.label)
        taken[text] = taken.get(text, 0) + 1
        yield (text if taken[text] == 1 else f"{text}#{taken[text]}"), group


def _bounded(rows: list[_Row]) -> tuple[list[_Row], dict[str, GroupFront]]:
    """Return the rows of as many groups as may be shown, and these groups.

    Groups that have waited for long come first, then the largest.
    """
    members: dict[str, dict[int, LiveProgress]] = {}
    for one, text, group in rows:
        members.setdefault(text, {})[one.rank] = group
    fronts = {text: find_front(found) for text, found in members.items()}
    if len(rows) <= PAIRS_LIMIT:
        return rows, fronts

    def order(text: str) -> tuple[float, int, str]:
        waits_s = fronts[text].in_flight_s or 0.0
        return (-waits_s if waits_s >= _SLOW_S else 0.0, -len(members[text]), text)

    kept: dict[str, GroupFront] = {}
    left = PAIRS_LIMIT
    for text in sorted(members, key=order):
        if len(members[text]) <= left:
            kept[text] = fronts[text]
            left -= len(members[text])
    return [row for row in rows if row[1] in kept], kept
