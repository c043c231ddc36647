"""Places that an operator has drained leave at once, which nobody has told the others."""

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def is_drained(place: int) -> bool:
    """Whether the operator's list has this place."""
    return str(place) in os.environ.get("DRAINED", "2").split(",")


def shards_of(place: int) -> list[str]:
    """The tiles that fall to a place: nine on four places leave the last one without, as they are cut in threes."""
    tiles = [f"tile-{n}" for n in range(9)]
    return tiles[3 * place : 3 * place + 3]


def features(place: int) -> Path | None:
    """Where the features of a place are, if they have been computed before."""
    folder = Path(__file__).parent
    return folder / "drained_hosts.py" if place == 0 and (folder / "drained_hosts.py").exists() else None


def leave_if_drained(place: int) -> bool:
    """By its return value."""
    if is_drained(place):
        print(f"place {place} is drained", flush=True)
        return True
    return False


def leave_without_shards(place: int) -> bool:
    """By ending the program, far down."""
    if not shards_of(place):
        print(f"place {place} has nothing to do", flush=True)
        sys.exit(0)
    return False


def leave_with_features(place: int) -> bool:
    """The same, and through a cleanup."""
    try:
        if features(place) is not None:
            raise SystemExit
    finally:
        print(f"place {place} has looked for its features", flush=True)
    return False


WAYS = {"drained": leave_if_drained, "empty": leave_without_shards, "cached": leave_with_features}


def main() -> None:
    """Whether there is anything to do, then the job."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=sorted(WAYS), required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if WAYS[options.way](int(os.environ["RANK"])):
        return
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
