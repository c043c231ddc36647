"""DDP on small images; the first process alone looks at the development set after each epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def build() -> nn.Module:
    """A small network with batch norm."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    )


@torch.no_grad()
def validate(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of right answers."""
    model.eval()
    right = 0
    for x, y in zip(images.split(8), labels.split(8), strict=True):
        right += int((model(x).argmax(1) == y).sum())
    model.train()
    return right / len(labels)


def main() -> None:
    """Five epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(build())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = torch.randn(64, 3, 8, 8), torch.randint(0, 5, (64,))
    dev_images, dev_labels = torch.randn(40, 3, 8, 8), torch.randint(0, 5, (40,))
    for epoch in range(5):
        for chosen in torch.randperm(64).split(8):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimizer.step()
        if rank == 0:
            accuracy = validate(model, dev_images, dev_labels)
            print(f"epoch {epoch}: {accuracy:.3f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
