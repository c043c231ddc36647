"""DDP: demand for bicycles; a board shows the loss of every rank, written by the first."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Board:
    """A file with a line for each point."""

    def __init__(self, folder: str, every: int) -> None:
        self.path, self.every = Path(folder) / "board.csv", every

    def loss(self, step: int, value: torch.Tensor) -> None:
        """The mean over the ranks and the highest, now and then."""
        if step % self.every:
            return
        values = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(values, value.detach().reshape(1))
        with self.path.open("a") as file:
            file.write(f"{step},{torch.cat(values).mean():.4f},{torch.cat(values).max():.4f}\n")


def stations(count: int) -> TensorDataset:
    """Weather and hour of the day, and bicycles that were taken."""
    generator = torch.Generator().manual_seed(4)
    weather = torch.randn(count, 9, generator=generator)
    return TensorDataset(weather, weather[:, :3].sum(dim=1, keepdim=True).exp().clamp(max=20))


def main() -> None:
    """Two epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    data = stations(960)
    sampler = DistributedSampler(data, drop_last=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, drop_last=True)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    board = Board(tempfile.mkdtemp(prefix="bicycles-"), every=25) if rank == 0 else None
    step = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for weather, taken in loader:
            step += 1
            loss = nn.functional.huber_loss(model(weather), taken)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if board is not None:
                board.loss(step, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
