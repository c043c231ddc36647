"""Rank 0 asks whether it may overwrite the output folder, as it did when the script ran on one device.

The others are at the barrier behind it. Started by a launcher that does not supervise.
"""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


def prepare_output(folder: Path) -> None:
    """Make the output folder; asks before anything is lost."""
    if any(folder.iterdir()):
        answer = input(f"{folder} is not empty. Overwrite? [y/N] ")
        if answer.strip().lower() != "y":
            raise SystemExit("nothing done")
    (folder / "config.json").write_text("{}")


def main() -> None:
    """Set up, then train a little."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "checkpoint-100").mkdir()
        if os.environ["RANK"] == "0":
            prepare_output(folder)
        dist.barrier()
        weights = torch.randn(8)
        for _ in range(20):
            dist.all_reduce(weights, op=dist.ReduceOp.MAX)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
