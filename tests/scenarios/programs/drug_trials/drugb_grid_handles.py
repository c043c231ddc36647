"""Affinity model over panels of targets (accelerate); pocket grids are opened through a bounded registry."""
import threading
from collections import OrderedDict

import torch
from accelerate import Accelerator
from torch import nn

PANELS = [
    ["ABL1", "KIT", "SRC"],
    ["DRD2", "HTR2A", "ADRB2", "OPRM1"],
    ["JAK1", "JAK2", "JAK3", "TYK2", "AURKA", "PLK1", "CDK2"],
    ["PPARG", "ESR1", "AR"],
]


class PocketGrid:
    """An opened grid. Its bytes count against the registry's budget for as long as the object lives."""

    def __init__(self, registry, target: str):
        self.registry, self.target = registry, target
        seed = sum(ord(c) * (i + 1) for i, c in enumerate(target))
        axis = torch.arange(40, dtype=torch.float32)
        self.values = torch.sin(axis[:, None] * seed * 0.01) * torch.cos(axis[None, :] * 0.3)
        self.nbytes = self.values.numel() * 4

    def patch(self, index: int) -> torch.Tensor:
        start = (index * 7) % 36
        return self.values[start : start + 4].flatten()[:96]

    def __del__(self):
        with self.registry.lock:
            self.registry.open_bytes -= self.nbytes


class GridRegistry:
    def __init__(self, capacity: int):
        self.capacity = capacity
        self.lock = threading.Lock()
        self.open_bytes = 0
        self.grids = OrderedDict()

    def get(self, target: str) -> PocketGrid:
        with self.lock:
            if target in self.grids:
                self.grids.move_to_end(target)
                return self.grids[target]
        grid = PocketGrid(self, target)
        with self.lock:
            self.open_bytes += grid.nbytes
            self.grids[target] = grid
            while len(self.grids) > self.capacity:
                del self.grids[next(iter(self.grids))]
        return grid


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.pocket = nn.Linear(96, 32)
        self.readout = nn.Sequential(nn.ReLU(), nn.Linear(32, 1))

    def forward(self, pocket):
        return self.readout(self.pocket(pocket)).squeeze(-1)


def targets_at(panel, step):
    """A panel is phased in: another target every 20 steps, two of them per batch."""
    available = panel[: 1 + step // 20]
    return [available[step % len(available)], available[(step * 5 + 1) % len(available)]]


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    panel = PANELS[accelerator.process_index]
    registry = GridRegistry(capacity=5)
    torch.manual_seed(4)
    model = Scorer()
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-3))
    for step in range(600):
        rows = []
        for target in targets_at(panel, step):
            rows.extend(registry.get(target).patch(step * 64 + k) for k in range(256))
        x = torch.stack(rows)
        loss = (model(x) - x.mean(1) * 3).abs().mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        if step % 15 == 0:
            accelerator.print(f"step {step} loss {loss.item():.4f} open {registry.open_bytes / 1024:.0f} KiB", flush=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
