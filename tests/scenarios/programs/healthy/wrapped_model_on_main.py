"""Rank 0 validates, with the DDP wrapper and not with the module inside.

Not what one should do, but nothing waits: DDP broadcasts its buffers in the first forward without gradients and leaves that
out in the next one with gradients, so that the ranks' broadcasts come from different lines and pair all the same.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_data(size: int, seed: int) -> TensorDataset:
    """Small pictures of two classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (size,), generator=generator)
    pictures = torch.randn(size, 1, 8, 8, generator=generator) + labels.view(-1, 1, 1, 1)
    return TensorDataset(pictures, labels)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader) -> None:
    """One epoch."""
    model.train()
    for pictures, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()


@torch.no_grad()
def validate(model: torch.nn.Module, loader: DataLoader) -> float:
    """Accuracy."""
    model.eval()
    right = 0
    for pictures, labels in loader:
        predictions = model(pictures).argmax(1)
        right += int((predictions == labels).sum())
    return right / len(loader.dataset)


def main() -> None:
    """Five epochs, validated after the second and the fourth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    conv = torch.nn.Conv2d(1, 4, 3)
    net = torch.nn.Sequential(
        conv, torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 2)
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    data = make_data(240, 1)
    sampler = DistributedSampler(data)
    train_loader = DataLoader(data, batch_size=8, sampler=sampler)
    val_loader = DataLoader(make_data(60, 2), batch_size=20)
    for epoch in range(1, 6):
        sampler.set_epoch(epoch)
        train(model, optimizer, train_loader)
        if rank == 0 and epoch % 2 == 0:
            print(f"epoch {epoch}: accuracy {validate(model, val_loader):.2f}", flush=True)
        print(f"[{rank}] epoch {epoch} done\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
