"""The node's sources: asked when it matters, each by itself, and never awaited for ever."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hangwatch.agent.capturing.hardware import add_hardware, mark_killed
from hangwatch.diagnosis.document import asked_of_nodes
from hangwatch.hardware.sources import registry as node
from hangwatch.hardware.sources.registry import NodeWatch
from hangwatch.model.capture import Capture, Gap, Job, RankCapture, RankIdentity
from hangwatch.model.devices import Gpu, KernelEvent, NodeFacts
from hangwatch.model.processes import ExitStatus, ProcessSample
from hangwatch.sources.discovery.rank_processes import RankProcess, in_first_pid_namespace, read_rank_process, uses_nccl

OURSELVES = RankIdentity(0, os.getpid(), 0.0)


class Plain:
    """Answers at once."""

    name = "nvml"
    began = 0

    def begin(self) -> None:
        """Count."""
        Plain.began += 1

    def read(self, _ranks: Sequence[RankProcess]) -> NodeFacts | Gap:
        """One GPU."""
        return NodeFacts("", 0, gpus=(Gpu(0, ranks=tuple(r.rank for r in _ranks)),), looked=(self.name,))


class Hanging(Plain):
    """Answers when it is let go."""

    name = "nccl ras"
    gate = threading.Event()

    def read(self, _ranks: Sequence[RankProcess]) -> NodeFacts | Gap:
        """Nothing for a while."""
        Hanging.gate.wait(30)
        return NodeFacts("", 0, looked=(self.name,))


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Lets the hanging source go, at the latest when the test ends."""
    Hanging.gate = threading.Event()
    yield Hanging.gate
    Hanging.gate.set()


@pytest.fixture
def on_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process passes for one that uses NCCL, and a start time for the right one."""
    monkeypatch.setattr(node, "uses_nccl", lambda pid: pid > 0)
    monkeypatch.setattr(node, "read_rank_process", lambda identity: RankProcess(identity, identity.pid, {}))


def test_a_job_without_nccl_is_not_read() -> None:
    """This process has no GPU: nothing is asked, and the capture stays as it is."""
    capture = Capture(Job("job"), 1, (RankCapture(OURSELVES),))
    assert not uses_nccl(os.getpid())
    assert asyncio.run(add_hardware(capture, NodeWatch([Plain]))) is capture


@pytest.mark.usefixtures("on_nccl")
def test_one_that_hangs_is_a_gap_and_costs_the_others_nothing(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not asked again before it has answered; the others are."""
    monkeypatch.setattr(node, "READ_TIMEOUT_S", 0.2)

    async def capture_twice() -> tuple[Capture, Capture]:
        watch = NodeWatch([Plain, Hanging])
        capture = Capture(Job("job"), 1, (RankCapture(OURSELVES),))
        first = await add_hardware(capture, watch)
        second = await add_hardware(capture, watch)
        gate.set()
        return first, second

    for capture in asyncio.run(capture_twice()):
        assert [g.ranks for g in capture.nodes[0].gpus] == [(0,)]
        assert [g.source for g in capture.gaps] == ["nccl ras"]
        assert "has not answered" in capture.gaps[0].reason
        assert asked_of_nodes(capture) == {"nvml": True, "nccl_ras": False}


@pytest.mark.usefixtures("on_nccl")
def test_first_readings_are_taken_once_in_a_while() -> None:
    """Not at each suspicion anew."""
    Plain.began = 0

    async def begin_twice() -> None:
        watch = NodeWatch([Plain])
        await watch.begin([OURSELVES])
        await watch.begin([OURSELVES])

    asyncio.run(begin_twice())
    assert Plain.began == 1


def test_only_a_process_that_is_gone_was_killed() -> None:
    """The kernel's word is put to a rank that has ended, with the signal it ends by; a living one has another's pid."""
    event = KernelEvent(5, "oom", "Killed process", pid=7, rank=1)
    gone = RankCapture(RankIdentity(1, 7, 1.0), (ProcessSample(9, 7, "gone"),))
    alive = RankCapture(RankIdentity(1, 7, 1.0), (ProcessSample(9, 7, "S"),))
    facts = NodeFacts("", 0, events=(event,))
    (marked,) = mark_killed((gone,), facts)
    assert marked.processes[-1].exit == ExitStatus(signal=9, oom_killed=True, seen_at_ns=5)
    assert mark_killed((alive,), facts) == (alive,)


def test_this_process_as_a_rank() -> None:
    """Its own pid and owner, by /proc; its start has to be the one that is known."""
    assert in_first_pid_namespace() == (Path("/proc/self/ns/pid").stat().st_ino == 0xEFFFFFFC)
    assert not read_rank_process(RankIdentity(0, os.getpid(), time.time() - 10**6)).alive
