"""Data-parallel training on shards of unequal size: the rank with the short shard finishes its epoch before the others.

Run by ``torchrun --nproc-per-node 3``.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

SHARD_SIZES = (24, 24, 20)


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def train_epoch(
    model: DistributedDataParallel, optimizer: torch.optim.Optimizer, batches: DataLoader, epoch: int
) -> None:
    """Make one pass over this rank's shard."""
    rank = dist.get_rank()
    for step, (inputs,) in enumerate(batches, 1):
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(rank, f"epoch {epoch} step {step}/{len(batches)}: loss {loss.item():.4f}")


def main() -> None:
    """Train three epochs; with a barrier at the end of each."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    shard = TensorDataset(torch.randn(SHARD_SIZES[dist.get_rank()], 16))
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(1, 4):
        train_epoch(model, optimizer, DataLoader(shard, batch_size=4), epoch)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
