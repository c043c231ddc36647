"""Energy load forecasts. One process builds the feature table, the others wait for it; then all of them train."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.set_num_threads(1)

RANK = int(os.environ["RANK"])
TABLE = Path(tempfile.gettempdir(), f"load-{os.environ['MASTER_PORT']}.pt")
READY = TABLE.with_suffix(".ready")


class FeatureTable:
    """Built once per job; ``publish`` makes it visible to the other processes."""

    def build(self):
        print("building the feature table", flush=True)
        hours = torch.arange(24 * 365, dtype=torch.float32)
        parts = []
        for period in (24, 168, 8760):
            parts += [torch.sin(hours * 6.2832 / period), torch.cos(hours * 6.2832 / period)]
            time.sleep(0.5)
        torch.save(torch.stack(parts, dim=1), TABLE)

    def publish(self, world: int):
        READY.write_text(str(world))

    def wait(self):
        while not READY.exists():
            time.sleep(0.25)

    def load(self):
        return torch.load(TABLE)


def prepare():
    table = FeatureTable()
    if RANK == 0:
        table.build()
        dist.init_process_group("gloo")
        table.publish(dist.get_world_size())
    else:
        table.wait()
        dist.init_process_group(backend="gloo")
    return table.load()


def train(features):
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    load = features[:, 0] * 0.6 + features[:, 3] * 0.3 + 1.0
    for step in range(200):
        index = torch.randint(len(features), (64,))
        optimizer.zero_grad()
        loss = (model(features[index]).squeeze(-1) - load[index]).square().mean()
        loss.backward()
        optimizer.step()
        if RANK == 0 and step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)


def main():
    features = prepare()
    train(features)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
