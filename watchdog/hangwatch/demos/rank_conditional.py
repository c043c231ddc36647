"""Training that logs a metric on rank 0 only, although computing it is a collective.

Every fourth step rank 0 averages the loss over all ranks under ``if rank == 0``; the others go straight to the barrier.
Run by ``torchrun --nproc-per-node 3``.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def report(step: int, loss: torch.Tensor) -> None:
    """Print the loss averaged over the ranks."""
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    say(dist.get_rank(), f"step {step}: mean loss {mean.item() / dist.get_world_size():.4f}")


def main() -> None:
    """Train 20 steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 21):
        inputs = torch.randn(8, 16)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(rank, f"step {step}")
        if step % 4 == 0:
            if rank == 0:
                report(step, loss)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
