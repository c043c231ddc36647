"""What the page shows of the jobs under watch: from watches and beats to plain values. Pure but for the watch's clock."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hangwatch.agent.job.watch import JobWatch
from hangwatch.agent.published import watched_job
from hangwatch.model.beats import Beat
from hangwatch.model.live import LiveJob, LiveView


def live_view(watches: Mapping[str, JobWatch], beats: Mapping[int, Beat], at_ns: int) -> LiveView:
    """All jobs as they stand at ``at_ns``, by the last ``beats`` (by pid)."""
    return LiveView(at_ns, tuple(_job(watches[job_id], beats, at_ns) for job_id in sorted(watches)))


def _job(watch: JobWatch, beats: Mapping[int, Beat], at_ns: int) -> LiveJob:
    job = watched_job(watch, beats, at_ns)
    told = watch.standing or watch.silence.standing
    if told is None:
        return job
    return msgspec.structs.replace(job, incident=told.incident, capture=told.diagnosis.case.capture)
