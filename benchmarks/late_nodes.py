"""Who is late in simulated jobs on devices of several nodes of eight, from the calls of 32 ranks at most.

``PYTHONPATH=tests/slow python -m benchmarks.late_nodes JOBS [SEED]``: so many jobs a row, of 16 to 64 ranks and of all shapes.
"""

# ruff: noqa: S311
from __future__ import annotations

import random
import sys
from collections import Counter
from multiprocessing import Pool

from arrivals import SimulatedJob, as_timed
from test_slow_sampling import NODE, SHAPES, compare

from benchmarks.late_rank import HEALTHY

#: What slows one rank down, and what happens in healthy jobs.
ROWS = [(0.0, healthy) for healthy in HEALTHY if healthy != "a slow while"] + [
    (s, "noise") for s in (0.05, 0.1, 0.2, 0.5)
]


def follow(seed: int, share: float, healthy: str) -> tuple[str, bool]:
    """Return what comes of one job: ``right``, ``wrong`` or ``nobody``, and whether anybody's calls were asked for."""
    chance = random.Random(seed)
    ranks, shape, noise = chance.choice((16, 32, 64)), chance.choice(SHAPES), chance.choice((0.02, 0.05, 0.1))
    late = chance.randrange(ranks)
    work, before = HEALTHY[healthy]

    def load(step: int, rank: int) -> float:
        usual = work(step, rank, ranks) if work is not None else 1.0
        return usual * (1 + share if rank == late else 1)

    alone = (lambda step, rank: before(step, rank, ranks)) if before is not None else None
    job = SimulatedJob(ranks, shape, load, before=alone, noise=noise, seed=seed)
    chosen, named, _ = compare(as_timed(job.run()))
    return ("nobody" if named is None else "right" if share and named == late else "wrong"), len(chosen) > 0


def main(jobs: int, first: int) -> None:
    """Print a row for each slowdown."""
    print(f"| job (nodes of {NODE}) | right | wrong | nobody | asked for calls |\n|---|---|---|---|---|")
    with Pool() as pool:
        for row, (share, healthy) in enumerate(ROWS):
            seeds = range(first + row * jobs, first + (row + 1) * jobs)
            found = pool.starmap(follow, [(seed, share, healthy) for seed in seeds])
            name = f"one rank {share:.0%} slower" if share else healthy
            told = Counter(one for one, _ in found)
            asked = sum(one for _, one in found)
            print(f"| {name} | {told['right']} | {told['wrong']} | {told['nobody']} | {asked} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
