"""Who is late in simulated jobs on devices of several nodes of eight, from the calls of 32 ranks at most.

``PYTHONPATH=tests/slow python -m benchmarks.late_nodes JOBS [SEED]``: so many jobs a row, of 16 to 64 ranks and of all shapes.
"""

# ruff: noqa: S311
from __future__ import annotations

import random
import sys
from collections import Counter
from multiprocessing import Pool

from arrivals import SimulatedJob, Work, slow
from test_slow_sampling import NODE, SHAPES, as_timed, compare

#: Healthy ones: nothing but noise, and ranks that take turns.
ROWS: dict[str, float | None] = {
    "noise": 0.0,
    "ranks take turns": None,
    **{f"one rank {s}% slower": s / 100 for s in (5, 10, 20, 50)},
}


def follow(seed: int, share: float | None) -> tuple[str, bool]:
    """Return whether the right rank was named, and whether anybody's calls were asked for."""
    chance = random.Random(seed)
    ranks, shape, noise = chance.choice((16, 32, 64)), chance.choice(SHAPES), chance.choice((0.02, 0.05, 0.1))
    late = chance.randrange(ranks)
    turns: Work = lambda step, rank: 1.3 if step % 4 == rank % 4 else 1.0  # noqa: E731
    job = SimulatedJob(ranks, shape, turns if share is None else slow(late, share), noise=noise, seed=seed)
    chosen, named, _ = compare(as_timed(job.run()))
    return ("nobody" if named is None else "right" if share and named == late else "wrong"), len(chosen) > 0


def main(jobs: int, first: int) -> None:
    """Print a row for each slowdown."""
    print(f"| job (nodes of {NODE}) | right | wrong | nobody | asked for calls |\n|---|---|---|---|---|")
    with Pool() as pool:
        for row, (name, share) in enumerate(ROWS.items()):
            seeds = range(first + row * jobs, first + (row + 1) * jobs)
            found = pool.starmap(follow, [(seed, share) for seed in seeds])
            told = Counter(one for one, _ in found)
            asked = sum(one for _, one in found)
            print(f"| {name} | {told['right']} | {told['wrong']} | {told['nobody']} | {asked} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
