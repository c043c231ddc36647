"""Titles of processes: what they say of a role and of ranks, and what is no title."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.agent.capturing.redact import secret_values
from hangwatch.sources.discovery.ranks import RankFinder
from hangwatch.sources.discovery.titles import Title, find_title, in_order_of_titles, is_overwritten, parse_title
from support import JobRunner, wait_for

#: Workers of an engine as vLLM starts them: the rank is an argument, and then the process takes a title.
ENGINE = """
import ctypes, os, signal, socket, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp

def work(position, folder, port, long):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it ends with its parent: its title overwrites the mark by which jobs are ended
    rank = 1 - position
    import setproctitle
    setproctitle.setproctitle(f"VLLM::Worker_TP{rank}" + "_" * long)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    open(f"{folder}/{rank}.new", "w").write(str(os.getpid()))
    os.rename(f"{folder}/{rank}.new", f"{folder}/{rank}")
    time.sleep(3600)

if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.start_processes(work, (sys.argv[1], port, int(sys.argv[2])), nprocs=2, start_method=sys.argv[3])
"""


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("VLLM::EngineCore", Title("VLLM::EngineCore", "VLLM::EngineCore")),
        ("VLLM::EngineCore_DP1", Title("VLLM::EngineCore", "VLLM::EngineCore_DP1", (1, 0, 0))),
        ("VLLM::Worker", Title("VLLM::Worker", "VLLM::Worker")),
        ("VLLM::Worker_TP3", Title("VLLM::Worker", "VLLM::Worker_TP3", (0, 0, 3))),
        ("VLLM::Worker_DP1_PP0_TP2_EP6", Title("VLLM::Worker", "VLLM::Worker_DP1_PP0_TP2_EP6", (1, 0, 2))),
        ("sglang::scheduler_PP1_TP2", Title("sglang::scheduler", "sglang::scheduler_PP1_TP2", (0, 1, 2))),
        ("sglang::scheduler_DP0_TP1_EP1", Title("sglang::scheduler", "sglang::scheduler_DP0_TP1_EP1", (0, 0, 1))),
        ("sglang::detokenizer", Title("sglang::detokenizer", "sglang::detokenizer")),
        ("sglang::data_parallel_controller", Title("sglang::data_parallel_controller", "sglang::data_parallel_controller")),
        ("ray::Trainer.step", Title("ray::Trainer", "ray::Trainer")),
        ("ray::Trainer", Title("ray::Trainer", "ray::Trainer")),
        ("ray::IDLE", Title("ray::IDLE", "ray::IDLE")),
        ("python train.py", None),
        ("std::vector<int> worker", None),
        ("", None),
    ],
)  # fmt: skip
def test_titles_of_engines_and_actors(text: str, title: Title | None) -> None:
    """Role, name without what changes, and the places by which ranks are ordered."""
    assert parse_title(text) == title


@pytest.mark.parametrize(
    ("command", "title"),
    [
        (b"VLLM::Worker_TP0" + b"\0" * 90, "VLLM::Worker_TP0"),
        (b"my training, step 12" + b"\0" * 9, "my training, step 12"),
        (b"VLLM::Worker_TP0", "VLLM::Worker_TP0"),  # as long as the command line was
        (b"python\0train.py\0", ""),
        (b"python\0", ""),
        (b"/usr/bin/tool\0", ""),
        (b"python\0\0\0", ""),
        (b"", ""),
    ],
)
def test_a_title_is_told_from_a_command_line(command: bytes, title: str) -> None:
    """One string with more NULs behind it than a command line has."""
    assert find_title(command) == title


def test_an_environment_without_a_variable_was_overwritten() -> None:
    """Nothing at all is an environment of none, or one that may not be read."""
    assert is_overwritten(b"orker_TP0\0\0\0\0")
    assert not is_overwritten(b"A=1\0\0")
    assert not is_overwritten(b"")


def test_titles_order_processes_only_where_all_differ() -> None:
    """Two with the same places, or one without any, leave the order to others."""
    names = ["VLLM::Worker_PP1_TP0", "VLLM::Worker_PP0_TP1", "VLLM::Worker_PP0_TP0"]
    assert in_order_of_titles([parse_title(name) for name in names]) == [2, 1, 0]
    assert in_order_of_titles([parse_title(name) for name in (*names, "VLLM::Worker_PP1_TP0_EP1")]) is None
    assert in_order_of_titles([parse_title("ray::Trainer"), parse_title("ray::Trainer")]) is None


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_are_found_under_their_titles(jobs: JobRunner, tmp_path: Path, method: str) -> None:
    """Command line and environment are overwritten, by a title longer than the first: the titles number the workers."""
    pytest.importorskip("setproctitle", reason="setproctitle is no part of this environment: make test installs it")
    script = tmp_path / "engine.py"
    script.write_text(ENGINE)
    job = jobs.python(script, str(tmp_path), "40" if method == "spawn" else "0", method)
    wait_for(lambda: all((tmp_path / str(rank)).exists() for rank in (0, 1)), 90, what="both workers")
    ranks = {rank: int((tmp_path / str(rank)).read_text()) for rank in (0, 1)}
    assert is_overwritten(Path(f"/proc/{ranks[0]}/environ").read_bytes())
    found = RankFinder().find(job.pid)
    (one,) = found.jobs
    assert {r.rank: r.pid for r in one.ranks} == ranks
    assert [r.title.rstrip("_") for r in one.ranks] == ["VLLM::Worker_TP0", "VLLM::Worker_TP1"]
    assert "engine.py" in one.job.command
    assert "order of their titles" in found.gaps[0].reason


def test_a_titled_worker_is_known_to_have_the_probe_of_its_parent(jobs: JobRunner, tmp_path: Path) -> None:
    """Its environment is lost: the parent's names the folder of the beats, and what is secret in both."""
    pytest.importorskip("setproctitle", reason="setproctitle is no part of this environment: make test installs it")
    script = tmp_path / "engine.py"
    script.write_text(ENGINE)
    folder = tmp_path / "run"
    job = jobs.python(
        script, str(tmp_path), "0", "spawn", env={"HANGWATCH_RUN_DIR": str(folder), "API_TOKEN": "hunter2-hunter2"}
    )
    wait_for(lambda: all((tmp_path / str(rank)).exists() for rank in (0, 1)), 90, what="both workers")
    ranks = {int((tmp_path / str(rank)).read_text()) for rank in (0, 1)}
    finder = RankFinder()
    (one,) = finder.find(job.pid).jobs
    assert "hunter2-hunter2" in secret_values(one.ranks)
    assert ranks <= {probed.pid for probed in finder.probed() if probed.folder == str(folder)}
