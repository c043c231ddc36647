"""PHY 472, project 3: tell photon showers from pion showers in a toy calorimeter."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CELLS = 12


class ShowerNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        self.head = nn.Linear(width, 2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(image).mean(dim=(2, 3)))


def simulate(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Showers of two kinds: a narrow core, or a wide one with a random offset."""
    rng = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 2, (count,), generator=rng)
    axis = torch.linspace(-1, 1, CELLS)
    centre = 0.3 * torch.randn(count, 1, generator=rng)
    width = torch.where(kind == 0, 0.15, 0.45).unsqueeze(1)
    profile = torch.exp(-((axis - centre) ** 2) / width)
    image = profile.unsqueeze(2) * profile.unsqueeze(1)
    return (image + 0.05 * torch.rand(image.shape, generator=rng)).unsqueeze(1), kind


def train_epoch(model, optimizer, images, kinds, batch: int = 32) -> float:
    model.train()
    total = 0.0
    for start in range(0, len(images), batch):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[start : start + batch]), kinds[start : start + batch])
        loss.backward()
        optimizer.step()
        total += loss.item()
        time.sleep(0.06)  # the event reader of the experiment is about as slow
    return total


@torch.no_grad()
def validate(model, images, kinds, batch: int = 64) -> float:
    model.eval()
    right = 0
    for start in range(0, len(images), batch):
        scores = model(images[start : start + batch])
        right += int((scores.argmax(1) == kinds[start : start + batch]).sum())
    return right / len(images)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    model = DistributedDataParallel(ShowerNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    images, kinds = simulate(640, seed=100 + rank)
    held_out = simulate(256, seed=5)
    for epoch in range(10):
        loss = train_epoch(model, optimizer, images, kinds)
        if rank == 0:
            accuracy = validate(model, *held_out)
            print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy:.3f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
