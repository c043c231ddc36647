"""A healthy job in which all ranks save for a long time at once, outside any collective, and then train on.

Run by torchrun.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist


def save(path: Path, seconds: float) -> None:
    """Write to a slow disk for that long."""
    end = time.monotonic() + seconds
    with path.open("wb") as file:
        while time.monotonic() < end:
            file.write(bytes(4096))
            file.flush()
            time.sleep(0.05)


def main() -> None:
    """Three steps, a save, three steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    with tempfile.TemporaryDirectory(prefix="saving-") as folder:
        for step in range(1, 7):
            dist.all_reduce(torch.ones(16))
            print(f"[rank {rank}] step {step}\n", end="", flush=True)
            if step == 3:
                save(Path(folder) / "checkpoint", options.seconds)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
