"""DDP with ZeroRedundancyOptimizer: a forecast of load, saved with its optimizer after every epoch."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def snapshot(model: nn.Module, optimizer: ZeroRedundancyOptimizer, path: Path) -> None:
    """Weights and moments in one file."""
    optimizer.consolidate_state_dict(to=0)
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)


def main() -> None:
    """Three epochs."""
    dist.init_process_group("gloo")
    folder = Path(tempfile.mkdtemp())
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(960, 24), torch.randn(960, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for hours, load in loader:
            loss = nn.functional.huber_loss(model(hours), load)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            snapshot(model, optimizer, folder / f"epoch-{epoch}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
