"""``--on-hang raise`` on NCCL: communicators are aborted, and what waited for the device raises the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from conftest import BLOCK
from hangwatch.outputs.push.audit import read_audit
from support import JOBS, JobRunner

_TIME_LIMIT_S = 180.0


@pytest.mark.parametrize(
    ("wait", "sync"),
    [
        ("all_reduce", "spin"),
        ("backward", "block"),
        pytest.param("recv", "spin", marks=pytest.mark.soak),
        pytest.param("all_reduce", "block", marks=pytest.mark.soak),
        pytest.param("barrier", "block", marks=pytest.mark.soak),
        pytest.param("barrier", "spin", marks=pytest.mark.soak),
        pytest.param("recv", "block", marks=pytest.mark.soak),
        pytest.param("backward", "spin", marks=pytest.mark.soak),
    ],
)
def test_a_wait_for_the_device_ends_with_the_verdict(
    nccl: Path, jobs: JobRunner, tmp_path: Path, wait: str, sync: str
) -> None:
    """Whether the host sleeps or spins: both ranks catch it, clean up to the end, and destroy their groups."""
    launcher = (nccl, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    options = ("--state-dir", tmp_path / "state", "--stall-after", "6", "--act-after", "2", "--on-hang", "raise")
    env = {**BLOCK, "SIMULATED_SYNC": sync, "CUDA_VISIBLE_DEVICES": None, "SCRATCH": str(tmp_path)}
    job = jobs.hangwatch("run", *options, "--", *launcher, JOBS / "raising.py", wait, env=env)
    assert job.wait(_TIME_LIMIT_S) == 1, job.stderr()
    (bundle,) = (tmp_path / "state").glob("incidents/*")
    (taken,) = read_audit(bundle).actions
    assert taken.outcome == "raised in ranks 0-1"
    for rank in (0, 1):
        assert f"rank {rank} caught: " in job.stdout()
        assert f"rank {rank} has cleaned up 3" in job.stdout()
