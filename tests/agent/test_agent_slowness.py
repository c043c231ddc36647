"""The watch over a job that goes on: when records are read, what is reported, and when that is over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from hangwatch.agent.capturing import arrivals
from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.agent.incidents.lifecycle import IncidentLifecycle
from hangwatch.agent.incidents.reopen import LeftOpen
from hangwatch.agent.job import slowness
from hangwatch.agent.job.slowness import OnThisNode, SlownessWatch
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.beats import Beat, BeatGroup
from hangwatch.model.capture import Capture, Job, RankCapture, RankIdentity
from hangwatch.model.incident import Incident
from hangwatch.model.slowness import Profile, ProfiledStack, Traffic
from hangwatch.model.stacks import Frame
from hangwatch.outputs.bundle.bundle import read_bundle
from hangwatch.sources.flight.transport import RawDump

RANKS = range(4)
STEP_NS = 100_000_000
LINE = Frame("load", "/srv/train/data.py", 12)


def beat(
    rank: int, backend: str = "gloo", server: str | None = "/run/server", torch: str = "2.13.0", enqueued: int = 5
) -> Beat:
    """A rank that uses one group of all ranks."""
    group = BeatGroup("0", tuple(RANKS), 0, "default_pg", backend=backend, enqueued=enqueued)
    return Beat(100 + rank, 5, 1, 1, 0, rank=rank, groups=(group,), server=server, world_size=4, torch=torch)


class Simulated:
    """A job of four ranks that reduce once a step, the watch over it, and what it reported."""

    def __init__(self, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state_dir = state_dir
        ranks = LocalRanks(Job("job", 4))
        ranks.add(RankIdentity(rank, 100 + rank, 1.0, node="here") for rank in RANKS)
        self.local = LocalScope(ranks)
        self.incidents: list[Incident] = []
        self.paths: list[Path | None] = []
        self.asked: list[int] = []
        self.profiled: list[int] = []
        self.watch = SlownessWatch(self.local, IncidentLifecycle(state_dir, self._note))
        self.beats = {100 + rank: beat(rank) for rank in RANKS}
        self.late: int | None = None
        self.longer = 1  # times as long is a step
        self.links = links(0.01)
        self.arrivals: list[dict[int, int]] = []
        self.now_s = 100.0
        monkeypatch.setattr(arrivals, "fetch_dump", self._fetch)
        monkeypatch.setattr(slowness, "_PERIOD_OF_CPU", 0.0)  # how busy the machine is does not matter here
        monkeypatch.setattr(arrivals, "profile_rank", self._profile)
        monkeypatch.setattr(LocalScope, "capture_once", self._capture)

    async def _note(self, incident: Incident, path: Path | None) -> None:
        self.incidents.append(incident)
        self.paths.append(path)

    async def _capture(self, _gaps: object) -> Capture:
        ranks = tuple(RankCapture(one) for one in self.local.ranks.in_order)
        return Capture(self.local.ranks.job, 7, ranks)

    async def _profile(self, rank: int, _pid: int, _seconds: float) -> Profile:
        self.profiled.append(rank)
        share = 0.4 if rank == self.late or self.longer > 1 else 0.0
        return Profile(rank, 200, (ProfiledStack((LINE,), share),), reading=share)

    async def _fetch(self, one: Beat, *_: object, **__: object) -> tuple[tuple[RawDump, ...], tuple[str, ...]]:
        self.asked.append(one.rank)
        entries = [
            {
                "record_id": at, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": at + 1,
                "p2p_seq_id": 0, "profiling_name": "gloo:all_reduce", "time_created_ns": times[one.rank],
                "input_sizes": [[8]], "output_sizes": [[8]], "input_dtypes": ["Float"], "output_dtypes": ["Float"],
                "state": "scheduled", "retired": False, "is_p2p": False, "timeout_ms": 1000,
            }
            for at, times in enumerate(self.arrivals)
        ]  # fmt: skip
        dump = {"version": "2.10", "entries": entries, "pg_status": {}, "pg_config": {}}
        return (RawDump("json", msgspec.json.encode(dump), 1),), ()

    def steps(self, count: int) -> None:
        """The job takes some steps."""
        for _ in range(count):
            began = max(self.arrivals[-1].values()) if self.arrivals else STEP_NS
            noise = {rank: (len(self.arrivals) * 7 + rank * 3) % 11 * STEP_NS // 200 for rank in RANKS}
            self.arrivals.append(
                {rank: began + self.longer * STEP_NS + noise[rank] + STEP_NS * (rank == self.late) for rank in RANKS}
            )

    async def go_on(self, looks: int) -> None:
        """Sixty steps before each look."""
        for _ in range(looks):
            self.steps(60)
            await self.look()

    async def look(self, *, calm: bool = True) -> None:
        """A tick that begins a look, and the tick that takes in what it has found."""
        self.watch.comparison = OnThisNode(self.local, links=self.links)
        self.now_s += 100.0
        now_ns = round(self.now_s * 1e9)
        await self.watch.update(self.beats, self.now_s, now_ns, calm=calm)
        if self.watch._task is not None:
            await asyncio.wait([self.watch._task])
        await self.watch.update(self.beats, self.now_s, now_ns, calm=calm)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulated:
    """A job whose ranks are equally fast."""
    return Simulated(tmp_path, monkeypatch)


def links(busy: float) -> Mapping[str, Sequence[Traffic]]:
    """Four nodes that send in a ring; the data of the second waits for the network for a part of the time."""
    slow, fast = (busy, 10**7, 10**7), (0.01, 10**7, 10**9)
    return {
        f"n{n}": [Traffic(f"10.0.0.{n}", f"10.0.0.{(n + 1) % 4}", *(slow if n == 1 else fast), 0)] for n in range(4)
    }


@pytest.mark.asyncio
async def test_a_slow_link_is_an_incident_until_it_is_slow_no_more(job: Simulated) -> None:
    """Two looks report it, once; two end it."""
    for busy, looks in ((0.01, 2), (0.5, 4), (0.01, 3)):
        job.links = links(busy)
        await job.go_on(looks)
    reported = [(i.verdict.cause and i.verdict.cause.id, i.ended_at is not None) for i in job.incidents]
    assert reported == [("slow-link", False), ("slow-link", True)]
    assert "n1 and n2" in job.incidents[0].verdict.summary


@pytest.mark.asyncio
async def test_a_late_rank_is_an_incident_until_it_is_late_no_more(job: Simulated) -> None:
    """Two looks report it, once; two end it. The bundle gives the same verdict."""
    for late, looks in ((None, 2), (2, 5), (None, 4)):
        job.late = late
        await job.go_on(looks)
    told = [(i.verdict.kind, i.verdict.culprit_ranks, i.ended_at is not None) for i in job.incidents]
    assert told == [("slow", (2,), False), ("slow", (2,), True)]
    first = job.incidents[0]
    assert first.lateness is not None
    assert first.lateness.reason == "input"
    assert first.lateness.late_s == pytest.approx(0.1, abs=0.03)
    assert first.verdict.divergence is not None
    assert first.verdict.divergence.culprit is not None
    assert first.verdict.divergence.culprit.line == LINE.line
    path = job.paths[0]
    assert path is not None
    before, capture = read_bundle(path)
    assert before is not None
    assert diagnose(capture).verdict == before.verdict == first.verdict


@pytest.mark.asyncio
async def test_a_job_that_is_slower_than_before(job: Simulated) -> None:
    """It is an incident until it is as fast again, with one rank watched before and after."""
    for longer, looks in ((1, 3), (2, 6), (1, 3)):
        job.longer = longer
        await job.go_on(looks)
    reported = [(i.verdict.cause and i.verdict.cause.id, i.verdict.culprit_ranks, i.ended_at) for i in job.incidents]
    assert [(one, ranks, ended is not None) for one, ranks, ended in reported] == [
        ("slow-job", (), False),
        ("slow-job", (), True),
    ]
    assert job.profiled == [0, 0]
    path = job.paths[0]
    assert path is not None
    before, capture = read_bundle(path)
    assert before is not None
    assert diagnose(capture).verdict == before.verdict == job.incidents[0].verdict


@pytest.mark.asyncio
async def test_no_look_while_a_hang_is_suspected(job: Simulated) -> None:
    """A look that goes on ends, too."""
    job.steps(40)
    await job.look(calm=False)
    assert job.asked == []
    job.now_s += 100.0
    await job.watch.update(job.beats, job.now_s, 0, calm=True)
    task = job.watch._task
    assert task is not None
    await job.watch.update(job.beats, job.now_s, 0, calm=False)
    await asyncio.wait([task])
    assert task.cancelled()


@pytest.mark.asyncio
async def test_no_look_at_ranks_that_cannot_tell(job: Simulated) -> None:
    """On NCCL, without torch's server or a recorder for Gloo, and if not all ranks are here."""
    job.steps(40)
    whole = dict(job.beats)
    for other in (beat(3, backend="nccl"), beat(3, server=None), beat(3, torch="2.9.1"), beat(3, enqueued=-1)):
        job.beats = {**whole, 103: other}
        await job.look()
    job.beats = {pid: one for pid, one in whole.items() if pid != 103}
    await job.look()
    job.beats = whole
    job.local.ranks.job = Job("job", 8)
    await job.look()
    assert job.asked == []


@pytest.mark.asyncio
async def test_long_records_are_read_seldom(job: Simulated) -> None:
    """A record of 2,000 operations each 10 s."""
    job.steps(2000)
    await job.look()
    assert job.asked == list(RANKS)
    for later_s in (9.0, 10.5):
        await job.watch.update(job.beats, job.now_s + later_s, 0, calm=True)
        assert (job.watch._task is not None) == (later_s > 10.0)
    job.watch.stop()


@pytest.mark.asyncio
async def test_the_second_look_comes_after_the_profile(job: Simulated) -> None:
    """At once; and if too few steps are new by then, the stacks are not read again."""
    job.late = 2
    job.steps(40)
    await job.look()
    assert job.profiled == [2, 0]
    for steps, count in ((1, 8), (20, 12)):
        job.steps(steps)
        await job.watch.update(job.beats, job.now_s, 0, calm=True)
        assert job.watch._task is not None
        await asyncio.wait([job.watch._task])
        assert len(job.asked) == count
        job.now_s += slowness._PERIOD_S
    await job.watch.update(job.beats, job.now_s, 0, calm=True)
    assert len(job.incidents) == 1
    assert len(job.profiled) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize("slow", [{"late": 1}, {"links": links(0.5)}, {"longer": 2}], ids=["rank", "link", "job"])
async def test_the_next_agent_goes_on_with_the_incident(job: Simulated, slow: Mapping[str, object]) -> None:
    """It reports nothing anew, and the end."""
    usual = {name: getattr(job, name) for name in slow}
    await job.go_on(3)
    vars(job).update(slow)
    await job.go_on(6)
    (path,) = job.paths
    assert path is not None
    incident, capture = read_bundle(path)
    assert incident is not None
    left = LeftOpen(incident, capture, path, tuple(job.local.ranks.in_order))
    assert left.kind == "slow"
    job.watch = SlownessWatch(job.local, IncidentLifecycle(job.state_dir, job._note))
    job.watch.resume(left.as_record())
    await job.go_on(2)
    vars(job).update(usual)
    await job.go_on(4)
    assert [(i.id, i.ended_at is not None) for i in job.incidents] == [(incident.id, False), (incident.id, True)]


@pytest.mark.parametrize(
    ("used", "torch", "backend"),
    [
        ({"gloo": 5}, "2.13.0", "gloo"),
        ({"nccl": 5}, "2.6.0", "nccl"),
        ({"nccl": 5, "gloo": 3}, "2.13.0", "nccl"),
        ({"nccl": 0, "gloo": 3}, "2.13.0", "gloo"),
        ({"gloo": 3}, "2.9.1", ""),
        ({"mpi": 3, "gloo": 3}, "2.13.0", ""),
        ({"nccl": 0}, "2.13.0", ""),
    ],
)
def test_ranks_are_compared_on_the_backend_that_their_devices_use(
    used: dict[str, int], torch: str, backend: str
) -> None:
    """Libraries make groups for both; torch records Gloo from 2.10 on."""
    groups = tuple(BeatGroup(name, tuple(RANKS), 0, backend=name, enqueued=enqueued) for name, enqueued in used.items())
    assert arrivals.find_backend(msgspec.structs.replace(beat(0, torch=torch), groups=groups)) == backend
