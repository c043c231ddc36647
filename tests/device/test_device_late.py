"""A rank that makes the others late on NCCL: found by how long its operations take on the device, if torch times them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from test_device_verdicts import incidents

from conftest import BLOCK, PROGRAMS
from hangwatch.model.incident import Incident
from support import Job, JobRunner, find_free_port, wait_for

LIMIT_S = 180.0
ENVIRONMENT: dict[str, str | None] = {
    **BLOCK, "CUDA_VISIBLE_DEVICES": None, "TORCH_NCCL_ENABLE_TIMING": "1", "TORCH_FR_BUFFER_SIZE": "600",
}  # fmt: skip


@pytest.mark.waits
def test_a_rank_that_is_late_on_its_host(nccl: Path, jobs: JobRunner, tmp_path: Path) -> None:
    """It waits least of all, and its line is named. The job is in two halves with an agent each, as on two nodes."""
    # Another test's agents meet at the port that is taken without an option.
    meeting = ("--master-addr", "127.0.0.1", "--master-port", str(find_free_port()))
    exchange = ("--exchange", f"tcp:{find_free_port()}")

    def start(half: int) -> Job:
        size = ("--nnodes", "2", "--nproc-per-node", "2", "--node-rank", str(half))
        launcher = (nccl, "-m", "torch.distributed.run", *size, *meeting)
        arguments = ("run", "--state-dir", tmp_path / "state", *exchange, "--")
        return jobs.hangwatch(*arguments, *launcher, PROGRAMS / "late.py", tmp_path, env=ENVIRONMENT)

    found = _follow([start(half) for half in (0, 1)], tmp_path)
    _check(found, late=2, waiting=(0, 1, 3))
    assert found.verdict.divergence is not None
    assert found.verdict.divergence.culprit is not None
    assert found.verdict.divergence.culprit.source == "time.sleep(0.04)"


@pytest.mark.waits
def test_a_stage_of_a_pipeline_that_is_late_on_its_device(nccl: Path, jobs: JobRunner, tmp_path: Path) -> None:
    """The same stage of the other replicas is faster. Dumps name it, too."""
    launcher = (nccl, "-m", "torch.distributed.run", "--nproc-per-node", "6", "--standalone")
    arguments = ("run", "--state-dir", tmp_path / "state", "--", *launcher, PROGRAMS / "late_stage.py", tmp_path)
    job = jobs.hangwatch(*arguments, env=ENVIRONMENT)

    def diagnose_dumps() -> None:
        steps = job.stdout().count("step ")
        wait_for(lambda: job.stdout().count("step ") >= steps + 2, LIMIT_S, "steps that are all slow")
        dumps = tmp_path / "dumps"
        dumps.mkdir()
        wait_for(lambda: len(list(dumps.glob("dump_?"))) == 6, LIMIT_S, "the dumps")
        told = jobs.hangwatch("diagnose", dumps, "--json")
        assert told.wait(LIMIT_S) == 0, told.stderr()
        lateness = msgspec.json.decode(told.stdout(), type=Incident).lateness
        assert lateness is not None
        assert (lateness.rank, lateness.waiting) == (3, (1, 5))

    found = _follow([job], tmp_path, diagnose_dumps)
    _check(found, late=3, waiting=(1, 5))
    assert found.verdict.divergence is None


def _follow(parts: list[Job], folder: Path, while_slow: Callable[[], None] = lambda: None) -> Incident:
    """Return the incident of a job whose rank becomes slow; then it is as fast as the others, and the incident is over."""
    state = folder / "state"
    parts[0].wait_for_output("step 100", LIMIT_S)
    assert incidents(state) == []
    (folder / "slow").touch()
    (found,) = wait_for(lambda: incidents(state), LIMIT_S, "an incident")
    while_slow()
    (folder / "slow").unlink()
    wait_for(lambda: incidents(state)[0].ended_at is not None, LIMIT_S, "its end")
    (folder / "stop").touch()
    for job in parts:
        assert job.wait(LIMIT_S) == 0, job.stderr()
    assert len(incidents(state)) == 1
    return found


def _check(found: Incident, late: int, waiting: tuple[int, ...]) -> None:
    assert (found.verdict.kind, found.verdict.culprit_ranks) == ("slow", (late,))
    assert found.lateness is not None
    assert found.lateness.waiting == waiting
    assert 0.02 <= found.lateness.late_s < 0.4  # 0.04, and what it takes longer on a busy machine
    assert "longer for a step than its peers, and ranks" in found.lateness.says
