"""The last beat of a process: that it has ended by itself, and all that it said until then."""

from __future__ import annotations

import signal

import pytest
from probe_runs import Run

from hangwatch.model.beats import Beat
from hangwatch.model.capture import Gap
from hangwatch.training.sources.beats import parse_steps
from support import LONG_S

ALONE = """
import os, signal, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
import hangwatch
def train():
    for step in range(1, 31):
        hangwatch.report(step=step, loss=1.0 / step)
"""


def last_beat(run: Run, program: str, status: int) -> Beat:
    """The beat that a program of one rank leaves when it has ended with that status."""
    rank = run.start_rank(run.write(ALONE + program))
    _, err = rank.communicate(timeout=LONG_S)
    assert rank.returncode == status, err
    beat = run.beat(rank.pid)
    assert beat is not None
    return beat


@pytest.mark.parametrize(
    ("end", "status"),
    [("", 0), ("dist.destroy_process_group()", 0), ("sys.exit(3)", 3)],
    ids=["end", "destroyed", "exit"],
)
def test_a_program_that_ends_by_itself_says_so_and_all_it_has_reported(run: Run, end: str, status: int) -> None:
    """Thirty steps within milliseconds are all in the last beat, and no exception is."""
    beat = last_beat(run, f"train()\n{end}\n", status)
    assert (beat.ended, beat.failure, beat.problems) == (True, (), ())
    steps = parse_steps(beat, 0, 0)
    assert not isinstance(steps, Gap)
    assert [step.step for step in steps[1]] == list(range(1, 31))


def test_a_program_that_an_exception_ends_says_which(run: Run) -> None:
    """What was raised, and where, is in the last beat."""
    beat = last_beat(run, "train()\nraise ValueError('no such shard')\n", 1)
    assert beat.ended
    assert beat.failure[-1] == "ValueError: no such shard"


@pytest.mark.parametrize(("end", "status"), [("os._exit(0)", 0), ("os.kill(os.getpid(), 9)", -signal.SIGKILL)])
def test_a_process_that_is_cut_off_has_no_last_word(run: Run, end: str, status: int) -> None:
    """The interpreter did not end: the beat that is left does not say so."""
    program = "import time\nwhile not os.listdir(os.environ['HANGWATCH_RUN_DIR'] + '/ranks'):\n    time.sleep(0.01)\n"
    assert not last_beat(run, program + f"{end}\n", status).ended


def test_a_child_of_multiprocessing_does_not_say_how_it_ended(run: Run) -> None:
    """Its exception is printed by multiprocessing itself, and the interpreter knows nothing of it."""
    script = run.write(
        """
import multiprocessing, os, sys

def train(rank):
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    if rank:
        raise ValueError("no such shard")

if __name__ == "__main__":
    ranks = [multiprocessing.get_context("spawn").Process(target=train, args=(rank,)) for rank in (0, 1)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    print([rank.exitcode for rank in ranks], flush=True)
"""
    )
    parent = run.start(script)
    out, err = parent.communicate(timeout=LONG_S)
    assert out == "[0, 1]\n", err
    assert [(beat.rank, beat.ended) for beat in run.beats()] == [(0, False), (0, False)]
