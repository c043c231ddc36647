"""A rank that makes the others late on NCCL: found by how long its operations take on the device, if torch times them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from test_device_verdicts import incidents

from conftest import BLOCK, PROGRAMS
from hangwatch.model.incident import Incident
from support import Job, JobRunner, find_free_port, wait_for

LIMIT_S = 180.0


@pytest.mark.waits
@pytest.mark.parametrize("where", ["host", "device"])
def test_a_late_rank_is_named(nccl: Path, jobs: JobRunner, tmp_path: Path, where: str) -> None:
    """It waits least of all, wherever it takes its time; the line is named if it is the host's. Then it is late no more.

    One that is late on the host is of a job in two halves, each with an agent of its own, as on two nodes.
    """
    state = tmp_path / "state"
    environment: dict[str, str | None] = {
        **BLOCK, "CUDA_VISIBLE_DEVICES": None, "TORCH_NCCL_ENABLE_TIMING": "1", "TORCH_FR_BUFFER_SIZE": "600",
    }  # fmt: skip
    program = [PROGRAMS / "late.py", tmp_path, where]
    halves = 2 if where == "host" else 1
    size = ["--nnodes", str(halves), "--nproc-per-node", str(4 // halves)]
    meeting = ["--master-addr", "127.0.0.1", "--master-port", str(find_free_port())]

    # Another test's agents meet at the port that is taken without an option.
    exchange = ("--exchange", f"tcp:{find_free_port()}") if halves > 1 else ()

    def start(half: int) -> Job:
        launcher = [nccl, "-m", "torch.distributed.run", *size, *meeting, "--node-rank", str(half)]
        return jobs.hangwatch("run", "--state-dir", state, *exchange, "--", *launcher, *program, env=environment)

    parts = [start(half) for half in range(halves)]
    parts[0].wait_for_output("step 200", LIMIT_S)
    assert incidents(state) == []
    (tmp_path / "slow").touch()
    (found,) = wait_for(lambda: incidents(state), LIMIT_S, "an incident")
    assert (found.verdict.kind, found.verdict.culprit_ranks) == ("slow", (2,))
    assert found.lateness is not None
    assert found.lateness.waiting == (0, 1, 3)
    assert 0.02 <= found.lateness.late_s < 0.4  # 0.04, and what its sleeps take longer on a busy machine
    assert "longer for a step than its peers, and ranks 0-1,3 waited for it" in found.lateness.says
    line = found.verdict.divergence.culprit if found.verdict.divergence is not None else None
    assert (line.source if line is not None else None) == ("time.sleep(0.04)" if where == "host" else None)
    if where == "device":
        _diagnose_dumps(jobs, parts[0], tmp_path / "dumps")
    (tmp_path / "slow").unlink()
    wait_for(lambda: incidents(state)[0].ended_at is not None, LIMIT_S, "its end")
    (tmp_path / "stop").touch()
    for job in parts:
        assert job.wait(LIMIT_S) == 0, job.stderr()
    assert len(incidents(state)) == 1


def _diagnose_dumps(jobs: JobRunner, job: Job, dumps: Path) -> None:
    """What the recorders hold after 200 more steps names the late rank, too."""
    steps = job.stdout().count("step ")
    wait_for(lambda: job.stdout().count("step ") >= steps + 2, LIMIT_S, "200 steps")
    dumps.mkdir()
    wait_for(lambda: len(list(dumps.glob("dump_?"))) == 4, LIMIT_S, "the dumps")
    told = jobs.hangwatch("diagnose", dumps, "--json")
    assert told.wait(LIMIT_S) == 0, told.stderr()
    lateness = msgspec.json.decode(told.stdout(), type=Incident).lateness
    assert lateness is not None
    assert (lateness.rank, lateness.waiting) == (2, (0, 1, 3))
