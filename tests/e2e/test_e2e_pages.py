"""Pages that are read when it hurts: their commands, run as they stand and in their order, on a job that hangs."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from nodes import Node

from hangwatch.demos import ENVIRONMENT, find_scenario
from hangwatch.model.errors import EXIT_STOPPED
from hangwatch.sources.proc.files import inner_pid
from shown import ROOT, shown_on
from support import LONG_S, Job, find_free_port, wait_for

#: What each command of docs/now.md ends with: a hang is 1 for `dump` and `diagnose`, and 75 once it was stopped.
NOW = {
    "hangwatch dump": 1,
    "hangwatch doctor": 0,
    "hangwatch report": 0,
    "hangwatch diagnose stacks": 1,
    "hangwatch run --on-hang stop -- torchrun --nproc-per-node 2 train.py": EXIT_STOPPED,
}


def squeezed(text: str) -> str:
    """Without line breaks and columns, which follow the terminal's width."""
    return " ".join(text.split())


@pytest.fixture
def shell(node: Node, tmp_path: Path) -> Callable[[str], Job]:
    """Starts a line of shell in the reader's folder, which holds ``train.py``: the program that the page's verdict is of."""
    program = find_scenario("rank-conditional")
    assert program is not None
    (tmp_path / "tests").mkdir()
    for name in ("train.py", "tests/all_reduce.py"):
        shutil.copy(program.path, tmp_path / name)
    own = {
        **ENVIRONMENT,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": None,
        "PET_MASTER_PORT": str(find_free_port()),  # torchrun's own is the same for all
    }
    return lambda line: node.start("bash", "-c", f'cd "{tmp_path}"; {line}', env=own)


def finished(job: Job, status: int) -> str:
    """What a command has printed on both streams, once it has ended with this status."""
    assert job.wait(LONG_S) == status, job.stdout() + job.stderr()
    return job.stdout() + job.stderr()


def hang(job: Job) -> dict[int, psutil.Process]:
    """The ranks of a job, when they print and compute no more."""
    seen: list[tuple[float, int]] = []

    def stuck() -> bool:
        ranks = job.ranks()
        if set(ranks) != {0, 1} or not all(f"[rank {rank}] step 4" in job.stdout() for rank in ranks):
            return False
        times = [process.cpu_times() for process in ranks.values()]
        seen.append((sum(one.user + one.system for one in times), len(job.stdout())))
        return len(seen) >= 10 and len(set(seen[-10:])) == 1

    wait_for(stuck, 120.0, "the job to hang", poll_s=0.1)
    return job.ranks()


def test_my_job_hangs_now(shell: Callable[[str], Job], tmp_path: Path) -> None:
    """docs/now.md from its first to its last command, the reports on the way; its sample of the output is what is printed."""
    text = (ROOT / "docs" / "now.md").read_text()
    commands = [" ".join(one.words) for one in shown_on(ROOT / "docs" / "now.md")]
    assert commands == list(NOW)
    dump, doctor, report, diagnose, run = commands
    job = shell("exec torchrun --nproc-per-node 2 train.py")
    ranks = hang(job)

    said = finished(shell(dump), NOW[dump])
    (sample,) = re.findall(r"\n\n```\n(.*?)```", text, re.DOTALL)
    for part in sample.split("...\n"):
        assert squeezed(part) in squeezed(said)
    assert "bundle " in said.lower()
    finished(shell(doctor), NOW[doctor])
    (keep,) = re.findall(r"`(py-spy dump --pid PID > \S+)`", squeezed(text))
    (tmp_path / "stacks").mkdir()
    for rank, process in ranks.items():
        pid = str(inner_pid(process.pid) or process.pid)
        finished(shell(keep.replace("PID", pid).replace("_N", f"_{rank}")), 0)
    assert job.process.poll() is None
    assert {rank: process.pid for rank, process in job.ranks().items()} == {
        rank: process.pid for rank, process in ranks.items()
    }
    job.end()

    assert "ranks-diverged" in finished(shell(report), NOW[report])
    page, *_ = [" ".join(one.words) for one in shown_on(ROOT / "docs" / "page.md")]
    assert finished(shell(page), 0).startswith("<!doctype html>")
    brief = next(" ".join(one.words) for one in shown_on(ROOT / "docs" / "page.md") if "github" in one.words)
    assert len(finished(shell(brief), 0).splitlines()) < 60
    later = finished(shell(diagnose), NOW[diagnose])
    assert "Ranks 0-1 wait for each other in all_reduce and barrier" in squeezed(later)
    assert "the files name no rank" not in squeezed(later)

    assert f"{run}   # a hang ends it: status {EXIT_STOPPED}" in text
    assert "DEADLOCK, proven" in finished(shell(run), NOW[run])


def test_the_lines_for_any_ci(shell: Callable[[str], Job], tmp_path: Path) -> None:
    """The block of docs/operations.md as a script: the step ends with the job's status, and the report is there."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL)
    (script,) = [block for block in blocks if "--state-dir out" in block]
    finished(shell(script), EXIT_STOPPED)
    assert "ranks-diverged" in (tmp_path / "report.md").read_text()
