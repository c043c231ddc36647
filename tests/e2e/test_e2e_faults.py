"""A hundred faults beside one training, and a hang at its end: the first job of ``benchmarks/faults.py``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from support import LONG_S, SOURCE_ROOT, JobRunner

_FAULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "faults.py"


@pytest.mark.soak
@pytest.mark.usefixtures("real")
@pytest.mark.timeout(9 * LONG_S)  # three minutes on a machine that is not busy
@pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces and mounts small file systems, which takes root")
def test_no_fault_harms_the_job_or_loses_its_incident(jobs: JobRunner) -> None:
    """Same losses and weights to the last bit, same output and status; and the incident is there once the agent is back."""
    run = jobs.start([sys.executable, _FAULTS, "--jobs", "0"], env={"PYTHONPATH": str(SOURCE_ROOT)})
    status = run.wait(8 * LONG_S)
    assert run.stdout(), run.stderr()
    found = json.loads(run.stdout())
    assert (status, found["wrong"]) == (0, {}), run.stderr()
    assert (found["jobs"], found["hangs"]) == (1, 1)
    assert found["faults"] > 100
