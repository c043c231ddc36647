"""The whole node at a glance, for commands that are no agent: every job, with the beats from its own run directory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from hangwatch.analysis.progress import live_job, word_state
from hangwatch.model.live import LiveView
from hangwatch.model.stacks import StackSample
from hangwatch.model.text import short_path
from hangwatch.sources.beats.node_beats import NodeBeats
from hangwatch.sources.discovery.ranks import Discovery, RankFinder
from hangwatch.sources.proc.samples import sample_process
from hangwatch.sources.stacks.samples import sample_stacks

#: Reading a stack starts a py-spy process (about 10 ms), so stacks are read less often than beats, and of few ranks.
_FRAMES_EVERY_S = 3.0
_MAX_STACKS = 64


def discover_node() -> tuple[Discovery, NodeBeats]:
    """Return every job on the node, and a reader for its beats."""
    finder, reader = RankFinder(), NodeBeats()
    finder.find()
    reader.follow(finder.probed())
    beats, gaps = reader.read()
    found = finder.find(None, beats)
    return Discovery(found.jobs, (*found.gaps, *gaps)), reader


class NodeObserver:
    """Observes the node repeatedly, its stacks less often."""

    def __init__(self) -> None:
        self._frames: Mapping[int, str] = {}
        self._frames_at_s: float | None = None

    def view(self) -> tuple[LiveView, list[str]]:
        """Return the current state of all jobs, and what could not be read."""
        found, reader = discover_node()
        beats, _ = reader.read()
        self._read_frames([identity.pid for job in found.jobs for identity in job.ranks])
        now_ns = time.time_ns()
        jobs = []
        for job in found.jobs:
            states = {r.rank: word_state(beats.get(r.pid), sample_process(r).state) for r in job.ranks}
            jobs.append(live_job(job.job, job.ranks, beats, states, now_ns, self._frames))
        return LiveView(now_ns, tuple(jobs)), [str(gap) for gap in found.gaps]

    def _read_frames(self, pids: list[int]) -> None:
        now_s = time.monotonic()
        if self._frames_at_s is not None and now_s - self._frames_at_s < _FRAMES_EVERY_S:
            return
        self._frames_at_s = now_s
        samples = asyncio.run(sample_stacks(pids[:_MAX_STACKS], with_locals=False))
        self._frames = {pid: _top(sample) for pid, sample in samples.items() if isinstance(sample, StackSample)}


def _top(sample: StackSample) -> str:
    frames = sample.main_frames
    return f"{frames[0].function} ({short_path(frames[0].file)}:{frames[0].line})" if frames else ""
