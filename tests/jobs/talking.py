"""A loop that prints a step and a loss on each rank, and trains nothing: one rank's loss is NaN until somebody has said so.

Ends when the incident it is given the folder of has been opened and is over again.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path


def state_of(folder: Path) -> str:
    """``none``, ``open`` or ``over``: how the one incident below the folder stands."""
    for document in folder.glob("*/incident.json"):
        return "over" if json.loads(document.read_text())["ended_at"] else "open"
    return "none"


def main() -> int:
    """Take steps; 1 where nobody said anything in the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("incidents", type=Path)
    parser.add_argument("--bad-rank", type=int, default=1)
    parser.add_argument("--limit", type=int, default=600)
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    for step in range(1, options.limit):
        state = state_of(options.incidents)
        bad = rank == options.bad_rank and step > 5 and state == "none"
        print(f"step {step}: loss {'nan' if bad else 2.5 - step / 1000}", flush=True)
        if state == "over":
            return 0
        time.sleep(0.2)
    return 1


if __name__ == "__main__":
    sys.exit(main())
