"""A rank that makes the others late on NCCL: found by how long its operations take on the device, if torch times them."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_device_verdicts import incidents

from conftest import BLOCK, PROGRAMS
from support import JobRunner, wait_for

LIMIT_S = 180.0


@pytest.mark.waits
@pytest.mark.parametrize("where", ["host", "device"])
def test_a_late_rank_is_named(nccl: Path, jobs: JobRunner, tmp_path: Path, where: str) -> None:
    """It waits least of all, wherever it takes its time; the line is named if it is the host's. Then it is late no more."""
    state = tmp_path / "state"
    launcher = [nccl, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    environment: dict[str, str | None] = {
        **BLOCK, "CUDA_VISIBLE_DEVICES": None, "TORCH_NCCL_ENABLE_TIMING": "1", "TORCH_FR_BUFFER_SIZE": "600",
    }  # fmt: skip
    program = [PROGRAMS / "late.py", tmp_path, where]
    job = jobs.hangwatch("run", "--state-dir", state, "--", *launcher, *program, env=environment)
    job.wait_for_output("step 200", LIMIT_S)
    assert incidents(state) == []
    (tmp_path / "slow").touch()
    (found,) = wait_for(lambda: incidents(state), LIMIT_S, "an incident")
    assert (found.verdict.kind, found.verdict.culprit_ranks) == ("slow", (2,))
    assert found.lateness is not None
    assert found.lateness.waiting == (0, 1, 3)
    assert found.lateness.late_s == pytest.approx(0.04, rel=0.5)
    assert "at least" in found.lateness.says
    line = found.verdict.divergence.culprit if found.verdict.divergence is not None else None
    assert (line.source if line is not None else None) == ("time.sleep(0.04)" if where == "host" else None)
    (tmp_path / "slow").unlink()
    wait_for(lambda: incidents(state)[0].ended_at is not None, LIMIT_S, "its end")
    (tmp_path / "stop").touch()
    assert job.wait(LIMIT_S) == 0, job.stderr()
    assert len(incidents(state)) == 1
