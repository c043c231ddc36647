"""What the page shows of the jobs under watch: from their states and beats to plain values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from hangwatch.agent.job.state import JobState
from hangwatch.agent.published import watched_job
from hangwatch.model.beats import Beat
from hangwatch.model.live import LiveJob, LiveView


def live_view(jobs: Iterable[JobState], beats: Mapping[int, Beat], at_ns: int) -> LiveView:
    """All jobs, in the given order, as they are at ``at_ns``, by the last ``beats`` (by pid)."""
    return LiveView(at_ns, tuple(_job(state, beats, at_ns) for state in jobs))


def _job(state: JobState, beats: Mapping[int, Beat], at_ns: int) -> LiveJob:
    job = watched_job(state, beats, at_ns)
    record = state.hang or state.silent_failure
    if record is None:
        return job
    return msgspec.structs.replace(job, incident=record.incident, capture=record.diagnosis.case.capture)
