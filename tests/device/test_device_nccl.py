"""The real ProcessGroupNCCL over the simulated device: operations, training, and each of the switches."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from conftest import BLOCK, StartNccl
from support import Job, wait_for

LIMIT_S = "30"
LONG_LIMIT_S = "600"
#: What torch's watchdog says of a hang.
HANGS = "Watchdog caught collective operation timeout"
RECORDER = {"TORCH_FR_BUFFER_SIZE": "200"}


@pytest.mark.parametrize(
    ("how", "nproc", "env"),
    [
        pytest.param("lazy", 2, BLOCK, id="lazy"),
        pytest.param(
            "eager", 4, {**BLOCK, "TORCH_NCCL_USE_COMM_NONBLOCKING": "1"}, id="nonblocking", marks=pytest.mark.soak
        ),
        pytest.param("eager", 2, BLOCK, id="eager", marks=pytest.mark.soak),
        pytest.param("lazy", 2, {**BLOCK, "SIMULATED_CONNECT": "stream"}, id="stream", marks=pytest.mark.soak),
        pytest.param("eager", 2, {**BLOCK, "SIMULATED_CONNECT": "first"}, id="first", marks=pytest.mark.soak),
        pytest.param("lazy", 2, {"SIMULATED_SYNC": "spin"}, id="spin", marks=pytest.mark.soak),
    ],
)
def test_every_operation_has_its_result(start_nccl: StartNccl, how: str, nproc: int, env: dict[str, str]) -> None:
    """Collectives, objects, sends and receives, groups and splits, in each of the ways in which communicators start."""
    job = start_nccl("collectives.py", how, nproc=nproc, env=env)
    assert job.wait(180) == 0, job.stderr()
    assert sorted(job.stdout().splitlines()) == [f"rank {rank}: right" for rank in range(nproc)]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["ddp", "fsdp1", "fsdp2", "conv"])
def test_training_runs_to_its_end(start_nccl: StartNccl, kind: str) -> None:
    """Thirty steps; the numbers mean nothing."""
    job = start_nccl("training.py", kind, env=BLOCK)
    assert job.wait(180) == 0, job.stderr()
    assert {f"rank {rank}: done" for rank in range(2)} <= set(job.stdout().splitlines())


def main_thread_cpu_s(process: psutil.Process) -> float:
    """CPU time of a process's main thread."""
    thread = next(thread for thread in process.threads() if thread.id == process.pid)
    return float(thread.user_time + thread.system_time)


@pytest.mark.soak  # it shows the simulated device
def test_a_missing_member_hangs_the_rest_and_spinning_burns(start_nccl: StartNccl) -> None:
    """Rank 0 spins in ``.item()``, rank 1 sleeps in it, rank 2 never comes; the recorder has the operation as scheduled."""
    job = start_nccl("waiting.py", "absent", LONG_LIMIT_S, nproc=3, env=RECORDER)
    for rank in (0, 1):
        job.wait_for_output(f"rank {rank}: has launched it: completed completed completed scheduled")
    ranks = job.ranks()
    before = [main_thread_cpu_s(ranks[rank]) for rank in (0, 1)]
    wait_for(lambda: main_thread_cpu_s(ranks[0]) - before[0] > 1.0, what="rank 0 burning a second of CPU time")
    assert main_thread_cpu_s(ranks[1]) - before[1] < 0.2
    assert "passed" not in job.stdout()


def native_stack(job: Job, rank: int) -> str:
    """Frames of a rank's main thread, native ones too."""
    dumper = Path(sys.executable).with_name("py-spy")
    command = [dumper, "dump", "--native", "--pid", str(job.ranks()[rank].pid)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout


@pytest.mark.parametrize(
    ("how", "connect", "blocks_in"),
    [
        ("lazy", "init", "ncclCommInitRankConfig"),
        pytest.param("eager", "first", "ncclAllReduce", marks=pytest.mark.soak),
        pytest.param("eager", "init", None, marks=pytest.mark.soak),
        pytest.param("lazy", "stream", None, marks=pytest.mark.soak),
    ],
)
def test_where_a_host_waits_for_the_first_collective(
    start_nccl: StartNccl, tmp_path: Path, how: str, connect: str, blocks_in: str | None
) -> None:
    """On the host, in the communicator's start or in the collective, or on the stream alone."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    env = {**BLOCK, "SIMULATED_CONNECT": connect}
    job = start_nccl("waiting.py", "late", LONG_LIMIT_S, str(pipe), how, env=env)
    job.wait_for_output("rank 1: waits for the pipe")
    if blocks_in is None:
        job.wait_for_output("rank 0: has launched it")
    else:
        wait_for(lambda: blocks_in in native_stack(job, 0), what=f"rank 0 in {blocks_in}", poll_s=0.2)
        assert "has launched it" not in job.stdout()
    assert "passed" not in job.stdout()
    pipe.write_bytes(b"come")
    assert job.wait() == 0, job.stderr()


@pytest.mark.soak
@pytest.mark.parametrize("case", ["kinds", "sizes"])
def test_operations_that_differ_may_pass_garbage(start_nccl: StartNccl, case: str) -> None:
    """NCCL does so, or hangs, as test_device_verdicts.py shows."""
    passing = start_nccl("waiting.py", case, LONG_LIMIT_S, env={**BLOCK, "SIMULATED_MISMATCH": "garbage"})
    assert passing.wait() == 0, passing.stderr()


@pytest.mark.soak
def test_a_device_that_stops_hangs_both(start_nccl: StartNccl) -> None:
    """The fourth operation of rank 1 never begins: its own watchdog reports it, and that of rank 0."""
    job = start_nccl("waiting.py", "steady", LIMIT_S, env={**BLOCK, "SIMULATED_STOPS": "1:3"})
    for rank in (0, 1):
        job.wait_for_output(f"[Rank {rank}] {HANGS}")
    assert "passed" not in job.stdout()


@pytest.mark.soak
def test_a_device_that_is_lost_fails_every_call(start_nccl: StartNccl) -> None:
    """The rank is told by its next call; the other one waits for it."""
    job = start_nccl("waiting.py", "steady", LONG_LIMIT_S, env={**BLOCK, "SIMULATED_LOST": "1:3"})
    assert job.wait() != 0
    assert re.search(r"\[rank1\].*(unhandled cuda error|unknown error)", job.stderr())
    assert "passed" not in job.stdout()


@pytest.mark.soak
def test_a_dead_member_is_noticed_or_not(start_nccl: StartNccl) -> None:
    """As an asynchronous error of the communicator, or not before the time limit."""
    noticing = start_nccl("waiting.py", "dies", LONG_LIMIT_S, env={**BLOCK, "SIMULATED_PEER_DEATH": "error"})
    noticing.wait_for_output("remote process exited or there was a network error")
    start_nccl("waiting.py", "dies", LIMIT_S, env=BLOCK).wait_for_output(HANGS)


@pytest.mark.soak
def test_a_slow_link_takes_its_time(start_nccl: StartNccl) -> None:
    """A megabyte at two megabytes a second; between other ranks there is no delay."""
    env = {**BLOCK, "SIMULATED_SLOW_LINK": "0-1:2097152"}
    job = start_nccl("waiting.py", "steady", LONG_LIMIT_S, env=env)
    assert job.wait() == 0, job.stderr()
    took_ms = [int(text) for text in re.findall(r"passed in (\d+) ms", job.stdout())]
    assert len(took_ms) == 2
    assert min(took_ms) >= 480


def test_the_watchdog_dumps_on_its_time_limit(start_nccl: StartNccl, tmp_path: Path) -> None:
    """All ranks' recorders are written by torch itself. With timing they know that what hangs is on the device already."""
    env = {
        **BLOCK,
        **RECORDER,
        "TORCH_NCCL_ENABLE_TIMING": "1",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_",
    }
    job = start_nccl("waiting.py", "absent", LIMIT_S, env=env)
    job.wait_for_output(HANGS)
    files = [tmp_path / f"dump_{rank}" for rank in range(2)]

    def read(path: Path) -> dict[str, object] | None:
        try:
            return pickle.loads(path.read_bytes())  # noqa: S301 - written by the job of this test
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    dumps = wait_for(lambda: all(found := [read(path) for path in files]) and found, 60, "the dumps of all ranks")
    assert [entry["state"] for entry in dumps[0]["entries"]] == ["completed"] * 3 + ["started"]
    assert [entry["state"] for entry in dumps[1]["entries"]] == ["completed"] * 3
