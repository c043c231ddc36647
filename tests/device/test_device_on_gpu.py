"""The one command for a machine with a GPU, over the simulated device: what fails here would fail there for nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from corpus.catalogue import load_catalogue
from support import JobRunner

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.usefixtures("nccl")
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("nccl-late-shard",), id="one"),
        pytest.param((), id="all", marks=pytest.mark.soak),
    ],
)
def test_results_captures_and_raw_sources_are_kept(jobs: JobRunner, tmp_path: Path, names: tuple[str, ...]) -> None:
    """Scenarios are judged right, and the recorder's dumps of a run without hangwatch name the same rank."""
    kept = tmp_path / "kept"
    command = [sys.executable, "-m", "scenarios.on_gpu", "--simulated", kept, *names]
    job = jobs.start(command, {"PYTHONPATH": f"{TESTS.parent}:{TESTS}"})
    assert job.wait(600.0) == 0, job.stdout() + job.stderr()
    wrong = {row["name"]: row["wrong"] for row in json.loads((kept / "results.json").read_text())}
    asked = names or [entry.scenario.name for entry in load_catalogue() if entry.scenario.gpu]
    assert wrong == {name: [] for name in asked}
    assert {path.name for path in (kept / "captures").iterdir()} >= {f"{name}.json.gz" for name in wrong}
    assert {path.name for path in kept.glob("dump_*")} == {"dump_0", "dump_1"}
    diagnosed = jobs.hangwatch("diagnose", kept, "--json")
    assert diagnosed.wait() == 1, diagnosed.stderr()
    assert json.loads(diagnosed.stdout())["verdict"]["culprit_ranks"] == [1]
