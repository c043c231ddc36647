"""How often the agent names the right late rank, a wrong one, or nobody, in simulated jobs that it follows from look to look.

Usage: PYTHONPATH=tests/slow python -m benchmarks.late_rank JOBS [FIRST_SEED]

JOBS: how many of each row. A seed decides everything: the shape (DDP, blocking all-reduce, FSDP, tensor within data
parallel), 4, 8 or 16 ranks, the noise of each piece of work (2, 5 or 10 %), and whether 2 % of all steps of a rank take twice
as long. One rank becomes slower in step 80 of 200; the records, of 2,000 operations, are read every 10 steps. No rule was
tuned on these seeds.
"""
# Chance, not secrets.
# ruff: noqa: S311

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from multiprocessing import Pool
from statistics import median

from arrivals import SimulatedJob

from hangwatch.model.collectives import Group, Operation
from hangwatch.slow.follow import Following, Process, Windows

STEPS, ONSET, EVERY, RING = 200, 80, 10, 2000
SHARES = (0.03, 0.05, 0.1, 0.2, 0.5)
#: Jobs in which no rank is slow, though ranks wait: the time that a step takes a rank, or what it does alone before it.
Load = Callable[[int, int, int], float]
HEALTHY: dict[str, tuple[Load | None, Load | None]] = {
    "noise": (None, None),
    "turns": (lambda step, rank, size: 1.3 if step % size == rank else 1.0, None),
    "long turns": (lambda step, rank, size: 1.3 if step // 20 % size == rank else 1.0, None),
    "uneven lengths": (lambda step, rank, _: random.Random(f"{step} {rank}").lognormvariate(0, 0.3), None),
    "two slow ranks": (lambda _, rank, __: 1.3 if rank in {1, 2} else 1.0, None),
    "a slow while": (lambda step, rank, _: 1.4 if rank == 1 and 80 <= step < 95 else 1.0, None),
    "evaluation on rank 0": (None, lambda step, rank, _: 3.0 if rank == 0 and step % 5 == 4 else 0.0),
    "checkpoints": (None, lambda step, rank, _: 8.0 if rank == 0 and step % 25 == 20 else 0.0),
}


def follow(seed: int, share: float, healthy: str) -> tuple[str, int | None]:
    """Return what comes of one job: ``right``, ``wrong`` or ``nobody``, and after how many steps the right rank was found."""
    chance = random.Random(seed)
    size, shape = chance.choice((4, 8, 16)), chance.choice(("ddp", "sync", "fsdp", "tp"))
    culprit, hiccups = chance.randrange(size), chance.choice((0.0, 0.02))
    work, before = HEALTHY[healthy]

    def load(step: int, rank: int) -> float:
        usual = work(step, rank, size) if work is not None else 1.0
        twice = random.Random(f"{seed} {step} {rank}").random() < hiccups
        return usual * (2 if twice else 1) * (1 + share if rank == culprit and step >= ONSET else 1)

    alone = (lambda step, rank: before(step, rank, size)) if before is not None else None
    job = SimulatedJob(size, shape, load, before=alone, noise=chance.choice((0.02, 0.05, 0.1)), seed=seed, steps=STEPS)
    job.run()
    operations = {
        rank: [
            Operation(at, Group(str(call.group), call.members), call.seq, call.name, False, call.at_ns, backend="gloo")
            for at, call in enumerate(calls)
        ]
        for rank, calls in job.streams.items()
    }
    windows, following, named = Windows(), Following(), set()
    after = None
    for step in range(EVERY, STEPS + 1, EVERY):
        windows.keep([Process(rank, rank, 0.0) for rank in operations])
        for rank, whole in operations.items():
            now = len(whole) * step // STEPS
            windows.add(Process(rank, rank, 0.0), tuple(whole[max(0, now - RING) : now]))
        if (streams := windows.newest()) is not None:
            following.look(streams)
        if following.found is not None:
            named.add(following.found.rank)
            if share and following.found.rank == culprit and after is None:
                after = step - ONSET
    wrong = named - ({culprit} if share else set())
    return ("wrong" if wrong else "right" if after is not None else "nobody"), after


def main(jobs: int, first: int) -> None:
    """Print a row for each slowdown, and for each healthy job."""
    rows = [(share, "noise") for share in SHARES] + [(0.0, healthy) for healthy in HEALTHY]
    print("| job | right | wrong | nobody | found after, steps, median |\n|---|---|---|---|---|")
    with Pool() as pool:
        for row, (share, healthy) in enumerate(rows):
            seeds = range(first + row * jobs, first + (row + 1) * jobs)
            found = pool.starmap(follow, [(seed, share, healthy) for seed in seeds])
            told, afters = Counter(one for one, _ in found), [steps for _, steps in found if steps is not None]
            name = f"one rank {share:.0%} slower" if share else healthy
            late = f"{median(afters):.0f}" if afters else ""
            print(f"| {name} | {told['right']} | {told['wrong']} | {told['nobody']} | {late} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
