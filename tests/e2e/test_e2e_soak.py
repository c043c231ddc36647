"""An agent through which jobs come and go keeps nothing of them: some rounds of ``benchmarks/soak.py``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from support import LONG_S, JobRunner

_SOAK = Path(__file__).resolve().parents[2] / "benchmarks" / "soak.py"


@pytest.mark.soak
@pytest.mark.usefixtures("real")
@pytest.mark.timeout(9 * LONG_S)  # two minutes on a machine that is not busy
@pytest.mark.skipif(os.geteuid() != 0, reason="makes a PID namespace without others' jobs in it, which takes root")
def test_jobs_come_and_go_and_nothing_grows(jobs: JobRunner) -> None:
    """Jobs that end, hang or lose a rank, and swarms of processes: threads, descriptors, files and memory are what they were."""
    alone = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    soak = jobs.start(
        [*alone, sys.executable, _SOAK, "--rounds", "2"], env={"PYTHONPATH": str(_SOAK.parents[1] / "watchdog")}
    )
    status = soak.wait(8 * LONG_S)
    assert soak.stdout(), soak.stderr()
    found = json.loads(soak.stdout())
    assert (status, found["grown"]) == (0, []), soak.stdout()
    assert found["jobs"] == 8
    assert found["first"]["threads"] >= 1, "the agent was asked"
