"""What hangwatch says of jobs that hang on the real ProcessGroupNCCL, over the simulated device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import BLOCK, PROGRAMS
from hangwatch.cli.common import HANG_STATUS
from hangwatch.model.incident import Incident, SourceLine
from support import JobRunner
from watched_runs import find_bundles, read_incident

PATIENCE_S = "6"
LIMIT_S = 240.0
Watch = Callable[..., Incident]


@pytest.fixture
def watch(nccl: Path, jobs: JobRunner, tmp_path: Path) -> Watch:
    """Run a case of ``hangs.py`` on two ranks under ``hangwatch run``; the one incident that comes of it."""

    def run(case: str, *, env: dict[str, str] | None = None) -> Incident:
        state = tmp_path / case
        launcher = [nccl, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        options = ["run", "--on-hang", "stop", "--stall-after", PATIENCE_S, "--"]
        environment: dict[str, str | None] = {"CUDA_VISIBLE_DEVICES": None, "HANGWATCH_STATE_DIR": str(state), **(env or {})}
        job = jobs.hangwatch(*options, *launcher, PROGRAMS / "hangs.py", case, env=environment)
        job.wait(LIMIT_S)
        (bundle,) = find_bundles(state)
        return read_incident(bundle)

    return run


def shown(incident: Incident) -> list[str | None]:
    """The texts of the two lines at which the sides are."""
    divergence = incident.verdict.divergence
    lines: list[SourceLine | None] = [divergence.culprit, divergence.others] if divergence is not None else []
    return [line.source if line is not None else None for line in lines]
