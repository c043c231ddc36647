"""The simulated CUDA runtime, as torch sees it: streams, events, memory, and the kernels whose results matter."""

from __future__ import annotations

import pytest

from conftest import BLOCK, StartNccl


def test_torch_finds_devices_under_their_own_name(start_nccl: StartNccl) -> None:
    """Nobody takes it for a GPU; streams run behind the host and in order; memory is counted and ends."""
    job = start_nccl("streams.py", nproc=0, env={"SIMULATED_DEVICES": "3"})
    assert job.wait() == 0, job.stderr()
    assert job.stdout().splitlines() == ["3 Simulated device", "right"]


def test_kernels_on_which_a_course_depends_compute(start_nccl: StartNccl) -> None:
    """Fill, arithmetic, comparison, sums, conversion, joining: the pinned build names them as ``kernels.cpp`` expects."""
    job = start_nccl("kernels.py", nproc=0)
    assert job.wait() == 0, job.stderr()
    assert job.stdout() == "right\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SIMULATED_SYNC", "yield"),
        pytest.param("SIMULATED_STOPS", "1", marks=pytest.mark.soak),
        pytest.param("SIMULATED_SLOW_LINK", "0-1:0", marks=pytest.mark.soak),
    ],
)
def test_a_switch_that_is_not_understood_ends_the_process(start_nccl: StartNccl, name: str, value: str) -> None:
    """A misspelt switch would make a run that shows nothing."""
    job = start_nccl("kernels.py", nproc=0, env={**BLOCK, name: value})
    assert job.wait() < 0
    assert f"{name}={value} is not understood" in job.stderr()
