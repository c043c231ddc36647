"""Agents learn to cross one biome each; training goes on until the levels are solved."""
import json
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BIOMES = {
    "tundra": {"smallest": 8, "largest": 60},
    "meadow": {"smallest": 4, "largest": 16},
    "jungle": {"smallest": 9, "largest": 72},
}
TARGET = 0.95


class Telemetry(threading.Thread):
    """Writes what is going on to a file, until the run's summary is there."""

    def __init__(self, folder, rank):
        super().__init__(name="telemetry")
        self.folder = folder
        self.path = folder / f"agent{rank}.jsonl"
        self.values = {}

    def run(self):
        with open(self.path, "a") as out:
            while not (self.folder / "summary.json").exists():
                out.write(json.dumps({"time": time.time(), **self.values}) + "\n")
                out.flush()
                time.sleep(0.5)


class Walker(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(24, 96)
        self.out = nn.Linear(96, 24)

    def forward(self, view):
        h = torch.zeros(view.shape[1], 96)
        for t in range(view.shape[0]):
            h = self.cell(view[t], h)
        return self.out(h)


class Trail:
    def __init__(self, smallest, largest, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.sizes = torch.randint(smallest, largest + 1, (200,), generator=self.generator)

    def views(self):
        return torch.randn(24, 160, 24, generator=self.generator)

    def solved(self, reach):
        return (self.sizes <= reach).float().mean().item()


def learn(rank, telemetry, max_updates=2000):
    torch.manual_seed(9)
    model = DistributedDataParallel(Walker())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    name = list(BIOMES)[rank % len(BIOMES)]
    trail = Trail(**BIOMES[name], seed=rank)
    for update in range(1, max_updates + 1):
        views = trail.views()
        loss = (model(views) - views[-1]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        reach = 2 + update // 4
        rate = trail.solved(reach)
        telemetry.values = {"update": update, "biome": name, "solved": rate, "loss": loss.item()}
        if update % 20 == 0:
            print(f"{name}: update {update}, solved {rate:.2f}", flush=True)
        if rate >= TARGET:
            print(f"{name}: done after {update} updates", flush=True)
            return update
    return max_updates


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = [tempfile.mkdtemp(prefix="biomes-")]
    dist.broadcast_object_list(folder, src=0)
    telemetry = Telemetry(Path(folder[0]), rank)
    telemetry.start()
    updates = learn(rank, telemetry)
    if rank == 0:
        (Path(folder[0]) / "summary.json").write_text(json.dumps({"updates": updates}))


if __name__ == "__main__":
    main()
