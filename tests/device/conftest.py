"""Jobs on NCCL: programs of this folder under torchrun, with the Python of ``.venv-nccl``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support import NCCL_BUILT, NCCL_PYTHON, Job, JobRunner

PROGRAMS = Path(__file__).resolve().parent / "programs"
#: For jobs whose waits are no matter: a host that waits for its device sleeps.
BLOCK = {"SIMULATED_SYNC": "block"}

StartNccl = Callable[..., Job]


@pytest.fixture  # of no wider scope: tests that share one run on one worker (workers.py)
def nccl(real: None) -> Path:
    """Return the Python for jobs on NCCL. Whoever uses it is of the tier ``nccl``."""
    if not NCCL_BUILT.exists():
        pytest.skip("the simulated device is not built: call 'make nccl'")
    return NCCL_PYTHON


@pytest.fixture
def start_nccl(nccl: Path, jobs: JobRunner) -> StartNccl:
    """Start a program on a number of ranks (0: alone, without a launcher)."""

    def start(program: str, *arguments: str, nproc: int = 2, env: dict[str, str] | None = None) -> Job:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc)] if nproc else []
        environment: dict[str, str | None] = {"CUDA_VISIBLE_DEVICES": None, "PYTHONPATH": None, **(env or {})}
        return jobs.start([nccl, *launcher, PROGRAMS / program, *arguments], environment)

    return start
