"""DDP: bad weld seams. There are far more good ones, so a rank takes as many good ones of its line as it has bad ones."""

import random
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset

SEAMS = 400
BAD_EVERY = (10, 14, 10)


def seams(line: int) -> TensorDataset:
    """All seams of a production line."""
    bad = (torch.arange(SEAMS) % BAD_EVERY[line] == 0).float()
    profiles = torch.randn(SEAMS, 12, generator=torch.Generator().manual_seed(line)) + bad[:, None]
    return TensorDataset(profiles, bad)


def balanced(dataset: TensorDataset, seed: int) -> Subset:
    """Half of it bad."""
    bad = [index for index, label in enumerate(dataset.tensors[1]) if label]
    good = [index for index, label in enumerate(dataset.tensors[1]) if not label]
    return Subset(dataset, bad + random.Random(seed).sample(good, len(bad)))


def main() -> None:
    """Six epochs; the first rank saves after each."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp())
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    dataset = seams(rank)
    for epoch in range(6):
        loader = DataLoader(balanced(dataset, seed=epoch), batch_size=8, shuffle=True)
        for profiles, bad in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(profiles).squeeze(1), bad)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.barrier()
        if rank == 0:
            torch.save(model.module.state_dict(), folder / f"{epoch}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
