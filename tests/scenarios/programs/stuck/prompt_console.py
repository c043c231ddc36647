"""A console left in the code opens on one rank when its loss looks odd. Run by ``torchrun --nproc-per-node 3``."""

import code

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def check(loss: torch.Tensor, step: int) -> None:
    """Have a look by hand at what is out of range."""
    if loss.item() > 50.0:
        code.interact(banner=f"step {step}: loss {loss.item():.1f}, have a look", local={"loss": loss, "step": step})


def main() -> None:
    """A regression; the data of rank 2 has one outlier."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)
    model = DistributedDataParallel(torch.nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(60):
        inputs = torch.rand(16, 5)
        targets = inputs.sum(1, keepdim=True)
        if (rank, step) == (2, 25):
            targets = targets * 100
        loss = (model(inputs) - targets).square().mean()
        check(loss, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
