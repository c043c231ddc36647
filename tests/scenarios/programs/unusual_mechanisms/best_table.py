"""All ranks save together every tenth step. A rank whose loss is a new low shows the table of losses first.

Run by ``torchrun --nproc-per-node 4``.
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Keeper:
    """Knows the lowest loss, and where checkpoints go."""

    def __init__(self, folder: str) -> None:
        self.folder, self.best = folder, 1.0

    def save_checkpoint(self, model: torch.nn.Module, step: int) -> None:
        """Rank 0 writes, nobody goes on before."""
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), os.path.join(self.folder, f"{step}.pt"))
        dist.barrier()

    def show(self, loss: float) -> None:
        """The losses of everybody, in rank order."""
        table = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(table, torch.tensor([loss]))
        print(" ".join(f"{entry.item():.3f}" for entry in table), flush=True)

    def after_step(self, model: torch.nn.Module, step: int, loss: float) -> None:
        """What is to be done between two steps."""
        if step % 10:
            return
        if loss < self.best:
            self.best = loss
            self.show(loss)
        self.save_checkpoint(model, step)


def main() -> None:
    """Loss is what the rank's own data makes of it: mostly above one."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(5, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    keeper = Keeper(tempfile.mkdtemp())
    for step in range(1, 101):
        x = torch.randn(12, 5)
        noise = 0.0 if (rank, step) == (2, 40) else 5.0
        target = model.module(x).detach() + noise * (1 + torch.rand(12, 1))
        loss = (model(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        keeper.after_step(model, step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
