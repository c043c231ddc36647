"""Assistant referee: offside line classifier on broadcast crops (DDP, one validation per epoch)."""
import os
from collections import namedtuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

Crop = namedtuple("Crop", "pixels offside")


def is_main():
    return dist.get_rank() == 0


def conv(inp, out):
    return nn.Sequential(nn.Conv2d(inp, out, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU())


def build_classifier():
    return nn.Sequential(conv(3, 8), conv(8, 16), conv(16, 32), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2))


class CropSource:
    """Draws a pitch, the last defender's line and an attacker on one side of it."""

    def __init__(self, seed, size=48):
        self.gen = torch.Generator().manual_seed(seed)
        self.size = size

    def take(self, n):
        pixels = 0.1 * torch.randn(n, 3, self.size, self.size, generator=self.gen)
        line = torch.randint(12, self.size - 12, (n,), generator=self.gen)
        label = torch.randint(0, 2, (n,), generator=self.gen)
        for i in range(n):
            pixels[i, 1] += 0.5
            pixels[i, 2, :, line[i]] = 1.0
            x = line[i] + (6 if label[i] else -6)
            pixels[i, 0, 20:30, x - 2:x + 2] = 1.0
        return Crop(pixels, label)


def validate(model, source, rounds=6):
    model.eval()
    right = seen = 0
    with torch.no_grad():
        for _ in range(rounds):
            crop = source.take(32)
            guess = model(crop.pixels).argmax(1)
            right += int((guess == crop.offside).sum())
            seen += len(guess)
    model.train()
    return right / seen


def fit(model, epochs=3, steps=120):
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    source = CropSource(seed=17 + dist.get_rank())
    held_out = CropSource(seed=4)
    best = 0.0
    for epoch in range(epochs):
        for _ in range(steps):
            crop = source.take(24)
            loss = F.cross_entropy(model(crop.pixels), crop.offside)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        if is_main():
            accuracy = validate(model, held_out)
            best = max(best, accuracy)
            print(f"epoch {epoch}: loss {loss.item():.3f} accuracy {accuracy:.3f} best {best:.3f}", flush=True)
        dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="env://")
    torch.manual_seed(int(os.environ.get("SEED", 1)))
    fit(DDP(build_classifier()))
    dist.destroy_process_group()
