"""What hangwatch costs a training that uses all cores: throughput with it (agent and probe) against without, in pairs.

Run: ``python benchmarks/throughput.py [--sessions 6] [--pairs 25] [--block-s 3] [--ranks 2]``. A session has two jobs of the
same program (DDP on Gloo, one thread a rank, steps of fixed work), one by ``torchrun``, one by ``hangwatch run -- torchrun``.
Both live all through it, and one of them at a time: the other one and all that belongs to it, its agent too, is stopped
(SIGSTOP) meanwhile. Each pair is a block of steps of one job and then the same of the other, in alternating order, so that what
the machine does besides falls on both. Before each block some steps are not counted: caches fill, beats and ticks come into
their rhythm. Every session starts both jobs anew, since where a process lies in memory makes more difference than hangwatch does.

Wall time of a block is that of its slowest rank, CPU time that of all ranks with all their threads (the kernel's own count).
Prints one JSON object: for each the median of the paired differences in percent, and 95 % intervals by bootstrap, which draws
sessions and then pairs of them. ``looks`` has to be 0: an agent that looked closely at a healthy job was busy with more than
watching.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import psutil

sys.path.extend(str(Path(__file__).resolve().parents[1] / "tests" / part) for part in ("", "e2e"))

from watched_runs import captures_total, torchrun

from support import LONG_S, Job, JobRunner, wait_for

_PROGRAM = """
import json, sys, time, torch, torch.distributed as dist
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

rank = dist.get_rank()
with open(f"{sys.argv[1]}/{rank}.in") as commands, open(f"{sys.argv[1]}/{rank}.out", "w") as results:
    for line in commands:
        before, steps = map(int, line.split())
        train(before)
        dist.barrier()
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        train(steps)
        print(json.dumps([time.perf_counter() - wall_s, time.process_time() - cpu_s]), file=results, flush=True)
"""
#: From the command on; the beats are fresh by then, and the agent finds the job at work.
_AGENT_AFTER_S = 0.8
_UNCOUNTED_S = 2.0
_DRAWS = 4000


@dataclass(frozen=True)
class Block:
    """One block of steps: seconds of the slowest rank, CPU seconds of all ranks, and of the agent with what it has started."""

    wall_s: float
    cpu_s: float
    agent_s: float


@dataclass(frozen=True)
class Pair:
    """The same steps with hangwatch and without it, one right after the other."""

    watched: Block
    plain: Block


class Training:
    """One of the two jobs: its processes, and the pipes by which each rank is told how many steps to take."""

    def __init__(self, runner: JobRunner, folder: Path, ranks: int, *, watched: bool) -> None:
        folder.mkdir()
        self._watched = watched
        #: How often the agent has looked closely.
        self.looks = 0.0
        self._program = folder / "training.py"
        self._program.write_text(_PROGRAM)
        for rank in range(ranks):
            for kind in ("in", "out"):
                os.mkfifo(folder / f"{rank}.{kind}")
        launch = torchrun(self._program, str(folder), nproc=ranks)
        if watched:
            own = {"TMPDIR": str(folder)}
            self._job: Job = runner.hangwatch("run", "--state-dir", folder / "state", "--", *launch, env=own)
        else:
            self._job = runner.start(launch)
        # Both ways for us, so that neither side waits for the other to open it, or sees an end of it.
        self._commands = [os.open(folder / f"{rank}.in", os.O_RDWR) for rank in range(ranks)]
        self._results = [os.fdopen(os.open(folder / f"{rank}.out", os.O_RDWR)) for rank in range(ranks)]
        wait_for(lambda: len(self._job.ranks()) == ranks, LONG_S, "the ranks to start", poll_s=0.2)
        self.block(1, 1)  # they are at work from the moment they answer

    def block(self, before: int, steps: int) -> Block:
        """So many steps that do not count, and so many that do. The job is awake from the beginning to the end of this."""
        agent = self._job.pid if self._watched else None
        tree = [self._job.process.pid, *(p.pid for p in psutil.Process(self._job.pid).children(recursive=True))]
        for pid in tree:
            if pid != agent:
                os.kill(pid, signal.SIGCONT)
        for command in self._commands:
            os.write(command, f"{before} {steps}\n".encode())
        if agent is not None:
            time.sleep(_AGENT_AFTER_S)
            os.kill(agent, signal.SIGCONT)
        agent_s, began_s = _agent_cpu_s(agent), time.monotonic()
        found = [self._read(result) for result in self._results]
        took_s, agent_s = time.monotonic() - began_s, _agent_cpu_s(agent) - agent_s
        if agent is not None:
            url = next(word for word in self._job.stderr().split() if word.endswith("/metrics,")).rstrip(",")
            self.looks = captures_total(url)
        for pid in tree:
            os.kill(pid, signal.SIGSTOP)
        wall_s = max(wall for wall, _ in found)
        return Block(wall_s, sum(cpu for _, cpu in found), agent_s * wall_s / took_s)

    def _read(self, result: TextIO) -> tuple[float, float]:
        ready, _, _ = select.select([result], [], [], LONG_S)
        assert ready, f"no block was finished in {LONG_S:g} s\n{self._job.stderr()[-4000:]}"
        wall_s, cpu_s = json.loads(result.readline())
        return wall_s, cpu_s

    def close(self) -> None:
        """Let go of the pipes, and end it."""
        self._job.end()
        for command in self._commands:
            os.close(command)
        for result in self._results:
            result.close()


def _agent_cpu_s(pid: int | None) -> float:
    """CPU time of all threads of the agent, by the kernel's nanoseconds, and of helpers it has waited for; 0 for none."""
    if pid is None:
        return 0.0
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    children = psutil.Process(pid).cpu_times()
    waited_s: float = children.children_user + children.children_system
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9 + waited_s


def measure(folder: Path, ranks: int, pairs: int, block_s: float, first: bool) -> tuple[list[Pair], float]:
    """One session: its pairs, and how often the agent looked. ``first``: the watched job is started first."""
    runner = JobRunner(folder / "jobs")
    found = []
    try:
        jobs = {w: Training(runner, folder / f"watched-{w}", ranks, watched=w) for w in (first, not first)}
        trial = jobs[False].block(50, 200)
        looks = jobs[True].looks  # before the beats began, it had to
        steps, before = (max(1, int(s / (trial.wall_s / 200))) for s in (block_s, _UNCOUNTED_S))
        for number in range(pairs):
            order = (True, False) if (number % 2 == 0) == first else (False, True)
            blocks = {watched: jobs[watched].block(before, steps) for watched in order}
            found.append(Pair(blocks[True], blocks[False]))
            _show(found, number + 1, pairs)
        looks = jobs[True].looks - looks
        for job in jobs.values():
            job.close()
    finally:
        runner.end_all()
    return found, looks


def _show(found: Sequence[Pair], number: int, pairs: int) -> None:
    wall, cpu = (_percent([quantity(pair) for pair in found]) for quantity in (_wall, _cpu))
    print(f"  pair {number} of {pairs}: wall {wall:+.2f} %, CPU {cpu:+.2f} % so far", file=sys.stderr)


def _wall(pair: Pair) -> float:
    return math.log(pair.watched.wall_s / pair.plain.wall_s)


def _cpu(pair: Pair) -> float:
    return math.log(pair.watched.cpu_s / pair.plain.cpu_s)


def _cpu_with_agent(pair: Pair) -> float:
    return math.log((pair.watched.cpu_s + pair.watched.agent_s) / pair.plain.cpu_s)


def _percent(logs: Sequence[float]) -> float:
    """The median of differences, in percent of what it takes without."""
    return 100 * math.expm1(statistics.median(logs))


def summarise(sessions: Sequence[Sequence[Pair]], quantity: Callable[[Pair], float]) -> dict[str, object]:
    """Median over all pairs, its 95 % interval, and the medians of each session."""
    logs = [[quantity(pair) for pair in pairs] for pairs in sessions]
    draw = random.Random(0)  # noqa: S311  # the same figures from the same measurements
    drawn = sorted(
        _percent([one for s in draw.choices(logs, k=len(logs)) for one in draw.choices(s, k=len(s))])
        for _ in range(_DRAWS)
    )
    interval = (drawn[int(0.025 * _DRAWS)], drawn[int(0.975 * _DRAWS)])
    return {
        "median_percent": round(_percent([one for session in logs for one in session]), 3),
        "interval_95_percent": [round(end, 3) for end in interval],
        "sessions_percent": [round(_percent(session), 2) for session in logs],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Training throughput with hangwatch against without, in pairs.")
    parser.add_argument("--sessions", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=25, help="pairs of blocks in each session")
    parser.add_argument("--block-s", type=float, default=3.0, help="about how long a block takes")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    sessions, looks = [], 0.0
    for number in range(options.sessions):
        print(f"session {number + 1} of {options.sessions}", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="hw-") as folder:
            pairs, looked = measure(Path(folder), options.ranks, options.pairs, options.block_s, number % 2 == 0)
        sessions.append(pairs)
        looks += looked
    blocks = [pair for pairs in sessions for pair in pairs]
    result = {
        "ranks": options.ranks,
        "cores": os.cpu_count(),
        "sessions": options.sessions,
        "pairs": len(blocks),
        "block_s": round(statistics.median(pair.plain.wall_s for pair in blocks), 2),
        "step_time_with_against_without": summarise(sessions, _wall),
        "cpu_of_ranks_with_against_without": summarise(sessions, _cpu),
        "cpu_of_ranks_and_agent_against_without": summarise(sessions, _cpu_with_agent),
        "agent_share_of_one_core": round(statistics.median(p.watched.agent_s / p.watched.wall_s for p in blocks), 4),
        "looks": looks,
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(result, indent=2))
    sys.exit(0 if looks == 0 else 1)


if __name__ == "__main__":
    main()
