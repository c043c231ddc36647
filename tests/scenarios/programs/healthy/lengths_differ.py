"""Sequences are not padded to one length: what is to be gathered differs in size. Gloo aborts one rank, and so the job ends."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Ten steps; the predictions are gathered in the sixth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    for step in range(10):
        length = 12 if step < 5 else 12 + 4 * rank
        predictions = model(torch.randn(length, 8))
        predictions.square().mean().backward()
        parts = [torch.zeros(length, 8) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, predictions.detach())
        print(f"[{rank}] step {step}: {torch.cat(parts).mean().item():.3f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
