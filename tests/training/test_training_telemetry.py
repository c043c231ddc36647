"""Training telemetry of a job as the agent gathers it from a log that the user has named."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hangwatch.model.capture import RankIdentity
from hangwatch.training.telemetry import TrainingTelemetry
from support import wait_for


def test_lines_of_ranks_of_another_node_are_nobodys(tmp_path: Path) -> None:
    """torchrun counts the ranks of its own node: of a log that names ranks which are not here, only the known ones are kept."""
    log = tmp_path / "train.log"
    log.touch()
    telemetry = TrainingTelemetry((str(log),))
    ranks = {rank: RankIdentity(rank, os.getpid(), time.time()) for rank in (0, 1)}
    step = 0

    def received() -> bool:
        nonlocal step
        step += 1
        with log.open("a") as file:
            file.writelines(f"[default{rank}]:step {step}: loss {rank + 0.5}\n" for rank in (0, 1, 5))
        telemetry.update(ranks, {}, time.time_ns())
        return telemetry.series is not None

    try:
        wait_for(received, 60, "a step")
    finally:
        telemetry.stop()
    assert telemetry.series is not None
    assert {line.loss for line in telemetry.series.steps} == {0.5}
    assert [(found.rank, {line.loss for line in found.steps}) for found in telemetry.series.ranks] == [(1, {1.5})]


@pytest.mark.asyncio
async def test_what_was_written_before_the_end_is_read_at_the_end(tmp_path: Path) -> None:
    """Lines that come between two readings are there once the files were read to their end, and none of later."""
    log = tmp_path / "train.log"
    log.write_text("")
    telemetry = TrainingTelemetry((str(log),))
    ranks = {0: RankIdentity(0, os.getpid(), time.time())}
    step = 0

    def followed() -> bool:
        nonlocal step
        step += 1
        with log.open("a") as file:
            file.write(f"step {step}: loss {step / 10}\n")
        telemetry.update(ranks, {}, time.time_ns())
        return telemetry.series is not None

    wait_for(followed, 60, "a step")
    with log.open("a") as file:
        file.writelines(f"step {step + more}: loss 0.5\n" for more in range(1, 31))
    await telemetry.finish()
    telemetry.update(ranks, {}, time.time_ns())
    assert telemetry.series is not None
    assert telemetry.series.steps[-1].step == step + 30
