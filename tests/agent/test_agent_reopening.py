"""An agent that is started again finds the incidents of its jobs, and ends those of jobs that are gone."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from bundles_on_disk import make_bundle, recorded_capture

from hangwatch.agent.incidents.reopen import find_left_open
from hangwatch.agent.job.suspicion import Hold
from hangwatch.agent.service import Service
from hangwatch.config.settings import Settings
from hangwatch.diagnosis.document import rfc3339
from hangwatch.diagnosis.verdict import diagnose
from hangwatch.model.capture import RankIdentity
from hangwatch.model.progress import LiveProgress, RankProgress
from hangwatch.outputs.bundle.bundle import read_bundle
from hangwatch.outputs.terminal.console import Console

NODE = os.uname().nodename


@pytest.fixture
def ranks() -> Iterator[tuple[RankIdentity, RankIdentity]]:
    """Two processes that live, as ranks."""
    processes = [subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) for _ in range(2)]
    first, second = (
        RankIdentity(rank, process.pid, psutil.Process(process.pid).create_time(), NODE)
        for rank, process in enumerate(processes)
    )
    yield first, second
    for process in processes:
        process.communicate(b"\n")


@pytest.mark.usefixtures("real")
def test_an_open_incident_finds_its_job(tmp_path: Path, ranks: tuple[RankIdentity, RankIdentity]) -> None:
    """The same processes get their incident back, with its verdict, its path and its diagnosis, once."""
    incident, path = make_bundle(tmp_path, "one", ended=False, identities=ranks)
    make_bundle(tmp_path, "ended", ended=True, identities=ranks)
    make_bundle(tmp_path, "moment-dump", ended=False, identities=ranks)
    left = find_left_open(tmp_path)
    (found,) = left.take(ranks)
    assert (found.incident, found.path) == (incident, path)
    record = found.as_record()
    assert record.active
    assert rfc3339(record.onset_ns) == incident.onset_at
    assert record.diagnosis.verdict == diagnose(recorded_capture()).verdict
    assert left.take(ranks) == ()
    assert left.take_ended() == ()


@pytest.mark.usefixtures("real")
def test_another_job_with_the_same_numbers_gets_nothing(
    tmp_path: Path, ranks: tuple[RankIdentity, RankIdentity]
) -> None:
    """Other pids, or the same pids of processes that started later, are another job; the incident waits for its end."""
    make_bundle(tmp_path, "one", ended=False, identities=ranks)
    left = find_left_open(tmp_path)
    first, second = ranks
    assert left.take([RankIdentity(0, first.pid + 1, first.start_time, NODE)]) == ()
    assert left.take([RankIdentity(0, first.pid, first.start_time + 60.0, NODE), second]) == ()
    assert len(left.waiting) == 1


def test_an_incident_whose_processes_are_gone_is_over(tmp_path: Path) -> None:
    """None of its ranks lives on this node: it is ended; one of another node's is left to that node."""
    gone = [RankIdentity(rank, 4_194_000 + rank, 1000.0, NODE) for rank in range(2)]
    make_bundle(tmp_path, "gone", ended=False, identities=gone)
    far = [RankIdentity(rank, 4_194_000 + rank, 1000.0, "another-node") for rank in range(2)]
    make_bundle(tmp_path, "far", ended=False, identities=far)
    left = find_left_open(tmp_path)
    assert [one.incident.id for one in left.waiting] == ["gone"]
    assert [one.incident.id for one in left.take_ended()] == ["gone"]
    assert left.waiting == []


def test_a_damaged_bundle_is_left_alone(tmp_path: Path) -> None:
    """What cannot be read neither stops the agent nor is touched."""
    _, path = make_bundle(tmp_path, "one", ended=False)
    (path / "capture.json").write_text("{")
    assert find_left_open(tmp_path).waiting == []
    (path / "incident.json").write_text("{")
    assert find_left_open(tmp_path / "missing").waiting == []


def test_trust_ends_with_the_first_move() -> None:
    """An incident that was taken up is not closed because nothing was seen yet, but because a rank moves or time is up."""

    def progress(completed: int) -> RankProgress:
        return RankProgress(0, (LiveProgress("0@", "default_pg", (0, 1), 5, completed),))

    hold = Hold(10.0)
    assert hold.lasts([], 0.0)
    assert hold.lasts([progress(4)], 1.0)
    assert hold.lasts(iter([progress(4)]), 9.0)
    assert not hold.lasts([progress(4)], 10.0)
    assert not hold.lasts([progress(5)], 2.0)


@pytest.mark.asyncio
@pytest.mark.usefixtures("real")
async def test_a_command_ends_what_others_left_and_says_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``hangwatch run`` in a folder of old incidents: the one whose processes are gone is over, and nobody is notified."""
    monkeypatch.delenv("HANGWATCH_LOG", raising=False)
    gone = [RankIdentity(rank, 4_194_000 + rank, 1000.0, NODE) for rank in range(2)]
    _, path = make_bundle(tmp_path, "gone", ended=False, identities=gone)
    said = io.StringIO()
    service = Service(Settings(), tmp_path, tmp_path / "run", Console(said), address="127.0.0.1:0", root=lambda: None)
    await service.open()
    try:
        while read_bundle(path)[0].ended_at is None:  # type: ignore[union-attr]
            await asyncio.sleep(0.01)
    finally:
        await service.close(over=True)
    assert said.getvalue() == ""
    assert service.agent.reopening.waiting == []
