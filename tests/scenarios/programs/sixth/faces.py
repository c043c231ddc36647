"""A generator of small pictures under DDP; a sheet of samples is drawn every forty steps."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def generator() -> nn.Module:
    """Noise to 8 x 8 pixels."""
    return nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh())


@torch.no_grad()
def draw(model: nn.Module, path: Path) -> None:
    """A sheet of 64."""
    model.eval()
    torch.save(model(torch.randn(64, 16)).view(64, 8, 8), path)
    model.train()


def main() -> None:
    """Two hundred steps against a fixed critic."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp())
    torch.manual_seed(0)
    model = DistributedDataParallel(generator())
    critic = nn.Linear(64, 1).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.999))
    for step in range(1, 201):
        pictures = model(torch.randn(32, 16))
        loss = nn.functional.softplus(-critic(pictures)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 40 == 0:
            draw(model, folder / f"{step:04}.pt")
            print(f"{step}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
