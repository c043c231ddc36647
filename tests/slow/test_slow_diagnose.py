"""``hangwatch diagnose`` on the dumps of real Gloo jobs that do not hang."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hangwatch.model.incident import Incident
from support import JOBS, JobRunner


@pytest.mark.soak  # on a machine with too few cores for its ranks, each of them is late at times
@pytest.mark.parametrize(("share", "late"), [("0.3", 2), ("0", None)])
def test_dumps_name_the_late_rank(jobs: JobRunner, tmp_path: Path, share: str, late: int | None) -> None:
    """A rank that needs 30 % more for each step is named, in the text too; without it nobody is."""
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    job = jobs.torchrun(JOBS / "late.py", str(dumps), share, nproc=4, env={"TORCH_FR_BUFFER_SIZE": "512"})
    assert job.wait(240.0) == 0, job.stderr()
    shown = jobs.hangwatch("diagnose", dumps)
    assert shown.wait(120.0) == 0, shown.stderr()
    told = jobs.hangwatch("diagnose", dumps, "--json")
    assert told.wait(120.0) == 0, told.stderr()
    lateness = msgspec.json.decode(told.stdout(), type=Incident).lateness
    assert lateness is not None
    assert lateness.rank == late
    assert ("rank 2 took" in " ".join(shown.stdout().split())) == (late is not None)
    if late is not None:
        assert lateness.waiting == (0, 1, 3)
        assert lateness.lost > 0.1
