"""Which ranks of a node are said to have raised, and which keep the job from going on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
import pytest
from bundles_on_disk import make_bundle

from hangwatch.agent.capturing.local_ranks import LocalRanks
from hangwatch.agent.capturing.scope import LocalScope
from hangwatch.agent.incidents import raising
from hangwatch.agent.incidents.raising import raise_in_ranks
from hangwatch.model.beats import BEAT_VERSION, Beat
from hangwatch.model.capture import Gap, Job, RankIdentity
from hangwatch.model.incident import Incident

pytestmark = pytest.mark.usefixtures("real")


class Beats:
    """One rank's last beat, whose socket is gone as its process is about to end."""

    def __init__(self, pid: int, control: str) -> None:
        self._beats = {pid: Beat(BEAT_VERSION, pid, 0, 1, time.time_ns(), pid, 1, initialized=True, control=control)}

    def read(self) -> tuple[dict[int, Beat], tuple[Gap, ...]]:
        """The beat."""
        return self._beats, ()

    def last_of(self, ranks: object) -> dict[int, Beat]:
        """Nobody has left anything."""
        del ranks
        return {}


@contextmanager
def scope_of(process: subprocess.Popen[bytes], control: Path) -> Iterator[LocalScope]:
    """A node whose only rank is ``process``."""
    rank = RankIdentity(0, process.pid, psutil.Process(process.pid).create_time(), "n0", 0)
    try:
        yield LocalScope(LocalRanks(Job("job"), known={0: rank}), Beats(process.pid, str(control)))
    finally:
        process.kill()
        process.wait()


def an_incident(tmp_path: Path) -> Incident:
    """A hang of a job on one node."""
    incident, _ = make_bundle(tmp_path, "20261124T000000000Z-job", ended=False)
    return msgspec.structs.replace(incident, job=msgspec.structs.replace(incident.job, nodes=("n0",)))


def test_a_rank_that_ends_of_what_its_peers_have_raised_keeps_nobody(tmp_path: Path) -> None:
    """Its connections were closed by those of other nodes: it cannot be asked any more, and is gone in a moment."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"])
    with scope_of(process, tmp_path / "gone") as local:
        raised = asyncio.run(raise_in_ranks(local, an_incident(tmp_path), grace_s=60.0))
    assert raised == raising.Raised(ended=(0,))


def test_a_rank_that_cannot_be_asked_and_stays_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told with the reason, long before those that were woken would be given up."""
    monkeypatch.setattr(raising, "_ENDING_S", 0.2)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    with scope_of(process, tmp_path / "gone") as local:
        raised = asyncio.run(raise_in_ranks(local, an_incident(tmp_path), grace_s=3600.0))
    assert raised.ranks == raised.ended == ()
    assert raised.left[0].startswith("the rank's probe cannot be asked: ")
