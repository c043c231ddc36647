"""Weed detector on drone patches. Metrics go through a small registry, filled by the parts of the loss."""
from collections import defaultdict

import torch
from accelerate import Accelerator
from torch import nn

SPECIES = ("thistle", "blackgrass", "dock")


class MetricBook:
    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.values = defaultdict(list)

    def add(self, name, value):
        self.values[name].append(float(value))

    def flush(self):
        """Mean of everything noted since the last call, over the whole fleet."""
        if not self.values:
            return {}
        local = torch.tensor([sum(map(sum, self.values.values())), sum(map(len, self.values.values()))])
        total = self.accelerator.gather(local.unsqueeze(0)).sum(0)
        self.values.clear()
        return {"weed/box": (total[0] / total[1]).item()}


class Flight:
    """A strip of the field, flown by one drone; weed pressure falls along the strip."""

    def __init__(self, drone, patches=16):
        self.drone, self.patches = drone, patches
        self.g = torch.Generator().manual_seed(70 + drone)

    def batch(self, leg):
        images = torch.randn(self.patches, 3, 24, 24, generator=self.g)
        density = 0.5 if leg < 260 else (0.4, 0.0, 0.4)[self.drone]
        weeds = torch.rand(self.patches, generator=self.g) < density
        boxes = torch.rand(self.patches, 4, generator=self.g)
        species = torch.randint(0, len(SPECIES), (self.patches,), generator=self.g)
        return images, weeds, boxes, species


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten())
        self.objectness, self.box, self.species = nn.Linear(800, 1), nn.Linear(800, 4), nn.Linear(800, len(SPECIES))

    def forward(self, images):
        h = self.body(images)
        return self.objectness(h)[:, 0], self.box(h), self.species(h)


def detection_loss(outputs, weeds, boxes, species, book):
    score, box, kind = outputs
    loss = nn.functional.binary_cross_entropy_with_logits(score, weeds.float())
    mask = weeds.float()
    loss = loss + ((box - boxes).abs().mean(1) * mask).sum() / mask.sum().clamp(min=1)
    loss = loss + (nn.functional.cross_entropy(kind, species, reduction="none") * mask).sum() / mask.sum().clamp(min=1)
    for i in weeds.nonzero()[:, 0].tolist():
        book.add(SPECIES[species[i]], (box[i] - boxes[i]).abs().mean())
    return loss


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = Detector()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.02))
    book, flight = MetricBook(accelerator), Flight(accelerator.process_index)
    for leg in range(600):
        batch = flight.batch(leg)
        loss = detection_loss(model(batch[0]), *batch[1:], book)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if leg % 10 == 9:
            metrics = book.flush()
            accelerator.print(f"leg {leg}: loss {loss.item():.3f} {metrics}")


if __name__ == "__main__":
    main()
