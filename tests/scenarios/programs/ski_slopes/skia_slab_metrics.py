"""Slab release classifier for the bulletin, with a small tracker of means per window."""
from collections import defaultdict

import torch
from accelerate import Accelerator
from torch import nn

ASPECTS = ("south", "east", "north")
BASE_GRADIENT = {"south": 0.20, "east": 0.35, "north": 0.90}
WINDOW = 10


class WindowTracker:
    """Collects values between two flushes and logs their means over the whole run."""

    def __init__(self, accelerator: Accelerator):
        self.accelerator = accelerator
        self.pending: dict[str, list[float]] = defaultdict(list)

    def add(self, name: str, value: float) -> None:
        self.pending[name].append(value)

    def flush(self, step: int) -> None:
        line = {}
        for name in sorted(self.pending):
            values = self.pending[name]
            local = torch.tensor(sum(values) / len(values))
            line[name] = self.accelerator.gather(local).mean().item()
        self.pending.clear()
        self.accelerator.print(f"step {step:4d}", {k: round(v, 4) for k, v in line.items()}, flush=True)


class SnowProfiles:
    """Profiles of one aspect; the temperature gradient grows with the length of the cold spell."""

    def __init__(self, aspect: str, size: int = 64):
        self.aspect, self.size = aspect, size
        self.generator = torch.Generator().manual_seed(40 + ASPECTS.index(aspect))

    def batch(self, day: int):
        layers = torch.randn(self.size, 20, 6, generator=self.generator)
        for _ in range(1200):  # settle the layers
            layers = 0.9 * layers + 0.1 * layers.roll(1, dims=1)
        gradient = BASE_GRADIENT[self.aspect] + 0.02 * day + 0.0 * layers[:, 0, 0]
        released = (layers.mean(dim=(1, 2)) > 0).long()
        return layers.flatten(1), gradient, released


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(120, 96), nn.ReLU(), nn.Linear(96, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    source = SnowProfiles(ASPECTS[accelerator.process_index])
    tracker = WindowTracker(accelerator)

    for day in range(1, 201):
        layers, gradient, released = source.batch(day)
        logits = model(layers)
        loss = nn.functional.cross_entropy(logits, released)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()

        hit = logits.argmax(dim=1) == released
        tracker.add("loss", loss.item())
        tracker.add("hit_rate", hit.float().mean().item())
        faceted = gradient > 1.6
        if faceted.any():  # weak layers of their own, worth a number of their own
            tracker.add("weak_layer_recall", hit[faceted].float().mean().item())
        if day % WINDOW == 0:
            tracker.flush(day)
    accelerator.end_training()


if __name__ == "__main__":
    main()
