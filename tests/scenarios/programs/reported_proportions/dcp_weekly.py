"""DDP with torch's distributed checkpoints: model and optimizer are kept every thirty steps."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def sales(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Four weeks, and the fifth."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    weeks = torch.randn(16, 28, generator=generator)
    return weeks, weeks.mean(dim=1, keepdim=True)


def keep(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, folder: str) -> None:
    """The whole state."""
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    dcp.save(state, checkpoint_id=f"{folder}/{step}")


def main() -> None:
    """Ninety steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = tempfile.mkdtemp()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(28, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 91):
        weeks, target = sales(step, rank)
        loss = (model(weeks) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0 and rank == 0:
            keep(model, optimizer, step, folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
