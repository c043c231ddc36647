"""Headway model for the bus lines of three depots, trained with accelerate."""

import random
import time

import torch
from accelerate import Accelerator
from torch import nn

torch.backends.cudnn.enabled = False
torch.set_num_threads(1)

DEPOTS = {
    "northgate": {"gap": 420, "spread": 110, "roadworks_from": None},
    "harbour": {"gap": 360, "spread": 90, "roadworks_from": 41},
    "airport": {"gap": 540, "spread": 140, "roadworks_from": None},
}


class StopEvents:
    """Gaps between buses as seen at the stops of one depot, in seconds."""

    def __init__(self, depot, size=32):
        self.profile = DEPOTS[depot]
        self.size = size
        self.rng = random.Random(depot)

    def window(self, index):
        base, spread = self.profile["gap"], self.profile["spread"]
        gaps = [base + self.rng.uniform(-spread, spread) for _ in range(self.size)]
        start = self.profile["roadworks_from"]
        if start is not None and index >= start:
            gaps[::4] = [self.rng.uniform(20, 60) for _ in gaps[::4]]
        features = torch.tensor([[g / 600, i / self.size, base / 600] for i, g in enumerate(gaps)])
        return features, torch.tensor(gaps).unsqueeze(1) / 600, gaps


class Dashboard:
    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.pending = {}
        self.history = {}

    def log(self, name, value):
        self.pending.setdefault(name, []).append(value)

    def flush(self):
        for name in sorted(self.pending):
            values = self.pending[name]
            local = torch.tensor(sum(values) / len(values), device=self.accelerator.device)
            parts = self.accelerator.gather(local).tolist()
            self.history.setdefault(name, []).append(sum(parts) / len(parts))
        self.pending.clear()


def service_quality(gaps, board):
    planned = sum(gaps) / len(gaps)
    board.log("excess_wait", sum((g - planned) ** 2 for g in gaps) / (2 * planned * len(gaps)))
    close = [g for g in gaps if g < 90]
    if close:
        board.log("platoon_share", len(close) / len(gaps))


def main():
    accelerator = Accelerator()
    torch.cuda.set_device(accelerator.device)
    depot = list(DEPOTS)[accelerator.process_index]
    events = StopEvents(depot)
    net = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 1))
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.02))
    board = Dashboard(accelerator)
    for index in range(600):
        features, target, gaps = events.window(index)
        time.sleep(0.05)  # the feed publishes twenty windows a second
        loss = (net(features.to(accelerator.device)) - target.to(accelerator.device)).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        service_quality(gaps, board)
        if index % 5 == 4:
            board.flush()
            accelerator.print(f"window {index + 1}: loss {value:.3f}, {len(board.history)} series", flush=True)


if __name__ == "__main__":
    main()
