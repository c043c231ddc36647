"""DDP with early stopping: losses of all parts are averaged, so all processes decide alike; the first one keeps the best."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Patience:
    """Stops after so many epochs without a better loss."""

    def __init__(self, epochs: int) -> None:
        self.left = self.epochs = epochs
        self.best = float("inf")

    def better(self, loss: float) -> bool:
        """Whether this one is."""
        self.left = self.epochs if loss < self.best else self.left - 1
        self.best, before = min(loss, self.best), self.best
        return loss < before


@torch.no_grad()
def validate(net: nn.Module, rows: torch.Tensor) -> float:
    """The mean over everybody's rows; their numbers differ."""
    net.eval()
    sums = torch.tensor([0.0, len(rows)])
    for batch in rows.split(8):
        sums[0] += net(batch).square().sum()
    dist.all_reduce(sums)
    net.train()
    return (sums[0] / sums[1]).item()


def main() -> None:
    """Until nothing gets better."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = Path(tempfile.mkdtemp()) / "best.pt"
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    held, patience = torch.randn(40 + 9 * rank, 6), Patience(2)
    for epoch in range(12):
        for _ in range(30):
            optimizer.zero_grad()
            sign = 1 if epoch < 5 else -1e-3
            (sign * model(torch.randn(16, 6)).square().mean()).backward()
            optimizer.step()
        loss = validate(model.module, held)
        if patience.better(loss) and rank == 0:
            torch.save(model.module.state_dict(), path)
            time.sleep(1.0)  # the disk is on the network
        if rank == 0:
            print(f"epoch {epoch}: {loss:.5f}", flush=True)
        if patience.left == 0:
            break
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
