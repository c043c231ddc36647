"""What hangwatch costs a training that uses all cores: throughput with it (agent and probe) against without, in pairs.

Run: ``python benchmarks/throughput.py [--pairs 100] [--block-s 2] [--ranks 2]``. One job under ``hangwatch run -- torchrun``: DDP
on Gloo, one thread a rank, steps of fixed work. Each pair is a block of steps with hangwatch at work and one with it at rest,
in an order drawn by lot: the agent and what it has started are stopped (SIGSTOP), the probe's thread waits for an event
instead of beating. hangwatch sets no variable of torch and does nothing when a step or a collective is called, so what these
two do is all that it does to a job. (Two jobs, one with and one without, cannot show it: where a process lies in memory makes
ten times that difference.) Before each block some steps are not counted: beats and ticks come into their rhythm.

Prints one JSON object. ``taken_percent``: CPU time of the agent, its helpers and the probes' threads, by the kernel's own count,
of all that the cores have meanwhile; with a rank on each core that is what the ranks do not get. ``step_time_percent``: the
mean of the paired differences of the slowest rank's wall time (the tenth at either end left out: the machine was elsewhere),
with its 95 % interval by bootstrap, and ``noise_percent``, by how much two blocks in a row differ without any reason.
``looks`` has to be 0: an agent that looked closely at a healthy job was busy with more than watching.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import select
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import psutil

sys.path.extend(str(Path(__file__).resolve().parents[1] / "tests" / part) for part in ("", "e2e"))

from watched_runs import captures_total, torchrun

from support import LONG_S, Job, JobRunner, wait_for

_PROGRAM = """
import json, sys, threading, time, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
inputs = torch.randn(64, 256)

def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

thread = next(t for t in threading.enumerate() if t.name == "hangwatch-probe")
probe, may_beat = thread._target.__self__, threading.Event()

def probe_cpu_s():
    return int(open(f"/proc/self/task/{thread.native_id}/schedstat").read().split()[0]) / 1e9

rank = dist.get_rank()
with open(f"{sys.argv[1]}/{rank}.in") as commands, open(f"{sys.argv[1]}/{rank}.out", "w") as results:
    for line in commands:
        watched, before, steps = map(int, line.split())
        if watched:
            vars(probe).pop("_beat", None)
            may_beat.set()
        else:
            may_beat.clear()
            probe._beat = may_beat.wait
        train(before)
        dist.barrier()
        wall_s, probe_s = time.perf_counter(), probe_cpu_s()
        train(steps)
        print(json.dumps([time.perf_counter() - wall_s, probe_cpu_s() - probe_s]), file=results, flush=True)
"""
#: From the command on; the beats are fresh by then, and the agent finds the job at work.
_AGENT_AFTER_S = 0.7
_UNCOUNTED_S = 1.2
#: The share of pairs left out at either end.
_TRIMMED = 0.1
_DRAWS = 4000


@dataclass(frozen=True)
class Block:
    """One block of steps: seconds of the slowest rank, CPU seconds of the agent with its helpers and of the probes' threads."""

    wall_s: float
    taken_s: float


@dataclass(frozen=True)
class Pair:
    """The same steps with hangwatch and without it, one right after the other."""

    watched: Block
    plain: Block


class Training:
    """The job: its processes, and the pipes by which each rank is told how many steps to take."""

    def __init__(self, runner: JobRunner, folder: Path, ranks: int) -> None:
        program = folder / "training.py"
        program.write_text(_PROGRAM)
        for rank in range(ranks):
            for kind in ("in", "out"):
                os.mkfifo(folder / f"{rank}.{kind}")
        launch = torchrun(program, str(folder), nproc=ranks)
        self._job: Job = runner.hangwatch("run", "--state-dir", folder / "state", "--", *launch)
        # Both ways for us, so that neither side waits for the other to open it, or sees an end of it.
        self._commands = [os.open(folder / f"{rank}.in", os.O_RDWR) for rank in range(ranks)]
        self._results = [os.fdopen(os.open(folder / f"{rank}.out", os.O_RDWR)) for rank in range(ranks)]
        wait_for(lambda: len(self._job.ranks()) == ranks, LONG_S, "the ranks to start", poll_s=0.2)
        self.block(1, 1, watched=True)  # they are at work from the moment they answer

    def block(self, before: int, steps: int, *, watched: bool) -> Block:
        """So many steps that do not count, and so many that do, with hangwatch at work or at rest."""
        agent = self._job.pid
        if not watched:
            os.kill(agent, signal.SIGSTOP)
        for command in self._commands:
            os.write(command, f"{int(watched)} {before} {steps}\n".encode())
        if watched:
            time.sleep(_AGENT_AFTER_S)
            os.kill(agent, signal.SIGCONT)
        agent_s, began_s = _agent_cpu_s(agent), time.monotonic()
        found = [self._read(result) for result in self._results]
        took_s, agent_s = time.monotonic() - began_s, _agent_cpu_s(agent) - agent_s
        wall_s = max(wall for wall, _ in found)
        return Block(wall_s, sum(probe_s for _, probe_s in found) + agent_s * wall_s / took_s)

    def looks(self) -> float:
        """How often the agent has looked closely."""
        os.kill(self._job.pid, signal.SIGCONT)
        return captures_total(
            next(word for word in self._job.stderr().split() if word.endswith("/metrics,")).rstrip(",")
        )

    def _read(self, result: TextIO) -> tuple[float, float]:
        ready, _, _ = select.select([result], [], [], LONG_S)
        assert ready, f"no block was finished in {LONG_S:g} s\n{self._job.stderr()[-4000:]}"
        wall_s, probe_s = json.loads(result.readline())
        return wall_s, probe_s

    def close(self) -> None:
        """Let go of the pipes, and end it."""
        os.kill(self._job.pid, signal.SIGCONT)
        self._job.end()
        for command in self._commands:
            os.close(command)
        for result in self._results:
            result.close()


def _agent_cpu_s(pid: int) -> float:
    """CPU time of all threads of the agent, by the kernel's nanoseconds, and of helpers it has waited for."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    children = psutil.Process(pid).cpu_times()
    waited_s: float = children.children_user + children.children_system
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9 + waited_s


def measure(folder: Path, ranks: int, pairs: int, block_s: float) -> tuple[list[Pair], float]:
    """The pairs, and how often the agent looked."""
    runner, lot = JobRunner(folder / "jobs"), random.Random(0)  # noqa: S311  # an order, no secret
    found: list[Pair] = []
    try:
        job = Training(runner, folder, ranks)
        trial = job.block(50, 200, watched=True)
        steps, before = (max(1, int(s / (trial.wall_s / 200))) for s in (block_s, _UNCOUNTED_S))
        job.block(before, steps, watched=True)
        looks = job.looks()  # before the beats began, it had to
        for number in range(pairs):
            order = lot.choice(((True, False), (False, True)))
            blocks = {watched: job.block(before, steps, watched=watched) for watched in order}
            found.append(Pair(blocks[True], blocks[False]))
            print(
                f"  pair {number + 1} of {pairs}: {_percent([_log(p) for p in found]):+.2f} % so far", file=sys.stderr
            )
        job.block(1, 1, watched=True)
        looks = job.looks() - looks
        job.close()
    finally:
        runner.end_all()
    return found, looks


def _log(pair: Pair) -> float:
    return math.log(pair.watched.wall_s / pair.plain.wall_s)


def _percent(logs: Sequence[float]) -> float:
    """The trimmed mean of differences, in percent of what it takes without."""
    cut = int(len(logs) * _TRIMMED)
    return 100 * math.expm1(statistics.mean(sorted(logs)[cut : len(logs) - cut]))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Training throughput with hangwatch against without, in pairs.")
    parser.add_argument("--pairs", type=int, default=100, help="pairs of blocks")
    parser.add_argument("--block-s", type=float, default=2.0, help="about how long a block takes")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        pairs, looks = measure(Path(folder), options.ranks, options.pairs, options.block_s)
    logs = [_log(pair) for pair in pairs]
    draw = random.Random(0)  # noqa: S311  # the same figures from the same measurements
    drawn = sorted(_percent(draw.choices(logs, k=len(logs))) for _ in range(_DRAWS))
    cores = min(options.ranks, os.cpu_count() or 1)
    taken = [100 * pair.watched.taken_s / pair.watched.wall_s / cores for pair in pairs]
    result = {
        "ranks": options.ranks,
        "cores": os.cpu_count(),
        "pairs": len(pairs),
        "block_s": round(statistics.median(pair.plain.wall_s for pair in pairs), 2),
        "taken_percent": round(statistics.mean(taken), 3),
        "taken_percent_of_the_tenth_that_is_most": round(statistics.quantiles(taken, n=10)[-1], 3),
        "step_time_percent": round(_percent(logs), 2),
        "interval_95_percent": [round(drawn[int(share * _DRAWS)], 2) for share in (0.025, 0.975)],
        "noise_percent": round(100 * statistics.stdev(logs), 1),
        "looks": looks,
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(result, indent=2))
    sys.exit(0 if looks == 0 else 1)


if __name__ == "__main__":
    main()
