"""A job with a checkpoint each step, which hangs at some step of its first starts and goes on from its checkpoint in the next.

Run by any launcher, with two ranks; ``--folder`` keeps the checkpoint, and in ``starts-RANK`` a line a start. The hang is a
deadlock: from step ``--hang-at`` on, a step later in each start, the ranks use two groups in opposite order. With ``--again`` the
checkpoint is not read, and it comes again in the same step.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist

import hangwatch


def count_starts(folder: Path, rank: int) -> int:
    """How often this rank was started, this time included; each start is a line."""
    file = folder / f"starts-{rank}"
    with file.open("a") as starts:
        variables = ("TORCHELASTIC_RESTART_COUNT", "HANGWATCH_RESTART_COUNT")
        starts.write(" ".join(os.environ.get(name, "-") for name in variables) + "\n")
    return len(file.read_text().splitlines())


def main() -> None:
    """Train from the checkpoint to ``--steps``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--hang-at", type=int, default=4)
    parser.add_argument("--hangs", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--local_rank", "--local-rank", type=int)  # deepspeed gives it
    options = parser.parse_args()
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    start = count_starts(options.folder, rank)
    hang_at = options.hang_at + (0 if options.again else start - 1)
    dist.init_process_group("gloo")
    groups = [dist.new_group(group_desc=name) for name in ("policy", "value")]
    checkpoint = options.folder / "checkpoint"
    done = int(checkpoint.read_text()) if checkpoint.exists() and not options.again else 0
    dist.barrier()  # all have read it before rank 0 writes another
    for step in range(done + 1, options.steps + 1):
        swapped = rank == 1 and start <= options.hangs and step >= hang_at
        for group in reversed(groups) if swapped else groups:
            dist.all_reduce(torch.ones(4), group=group)
        if rank == 0:
            whole = checkpoint.with_suffix(".new")
            whole.write_text(str(step))
            whole.replace(checkpoint)
        hangwatch.report(step=step, loss=1.0 / step)
        print(f"[rank {rank}] step {step}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
