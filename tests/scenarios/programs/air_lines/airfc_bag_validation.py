"""Baggage-belt vision: bag type from small belt crops, with validation on the held-out belt."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Settings:
    epochs: int = 8
    steps_per_epoch: int = 40
    batch: int = 24
    first_validation: int = 2
    classes: int = 5


class BeltCamera:
    """Draws labelled crops of one belt."""

    def __init__(self, belt, settings):
        self.rng = torch.Generator().manual_seed(100 + belt)
        self.settings = settings
        self.prototypes = torch.randn(settings.classes, 3, 24, 24, generator=torch.Generator().manual_seed(1))

    def crops(self):
        labels = torch.randint(self.settings.classes, (self.settings.batch,), generator=self.rng)
        noise = torch.randn(self.settings.batch, 3, 24, 24, generator=self.rng)
        return self.prototypes[labels] + 0.8 * noise, labels


def build(classes):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes),
    )


class BagTrainer:
    def __init__(self, settings):
        self.settings, self.rank = settings, dist.get_rank()
        self.model = DDP(build(settings.classes))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.camera = BeltCamera(self.rank, settings)
        self.held_out = BeltCamera(99, settings)

    def run_epoch(self):
        self.model.train()
        total = 0.0
        for _ in range(self.settings.steps_per_epoch):
            crops, labels = self.camera.crops()
            loss = nn.functional.cross_entropy(self.model(crops), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / self.settings.steps_per_epoch

    @torch.no_grad()
    def validate(self, batches=6):
        self.model.eval()
        right = seen = 0
        for _ in range(batches):
            crops, labels = self.held_out.crops()
            right += (self.model(crops).argmax(1) == labels).sum().item()
            seen += len(labels)
        return right / seen

    def fit(self):
        for epoch in range(self.settings.epochs):
            loss = self.run_epoch()
            if epoch >= self.settings.first_validation and self.rank == 0:
                print(f"epoch {epoch} loss {loss:.3f} held-out accuracy {self.validate():.2f}", flush=True)
            dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    BagTrainer(Settings()).fit()
    dist.destroy_process_group()
