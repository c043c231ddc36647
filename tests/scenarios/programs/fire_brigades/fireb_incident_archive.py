"""Call-volume forecaster; after each week the incidents are archived in the background."""
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.nn.functional as F

COUNTIES = {0: 6, 1: 9, 2: 240}
WEEK = 25


class Archive:
    """Uploads the week's incidents record by record and keeps a common index of all counties."""

    def __init__(self):
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="archive")
        self.pending = []
        self.index = {}

    def _store(self, week, records):
        digest = 0
        for record in records:
            digest = (digest * 31 + int(record)) % 1_000_003
            time.sleep(0.015)
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, (len(records), digest))
        self.index[week] = everyone

    def submit(self, week, records):
        self.pending.append(self.pool.submit(self._store, week, records))

    def drain(self):
        for future in self.pending:
            future.result()
        self.pending.clear()


def average_gradients(parameters):
    flat = torch.cat([p.grad.reshape(-1) for p in parameters])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    offset = 0
    for p in parameters:
        p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
        offset += p.numel()


def redraw_station_map(seconds=1.2):
    """Nearest station of every grid cell, refined as long as the budget lasts."""
    end = time.monotonic() + seconds
    stations = torch.rand(12, 2)
    while time.monotonic() < end:
        cells = torch.rand(2000, 2)
        nearest = torch.cdist(cells, stations).argmin(1)
        stations = torch.stack([cells[nearest == k].mean(0) if (nearest == k).any() else stations[k]
                                for k in range(12)])
        time.sleep(0.01)
    return stations


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(3)
    layers = [torch.nn.Linear(14, 32), torch.nn.Linear(32, 1)]
    parameters = [p for layer in layers for p in layer.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    archive = Archive()
    generator = torch.Generator().manual_seed(rank)
    for week in range(30):
        for _ in range(WEEK):
            x = torch.randn(256, 14, generator=generator)
            y = x[:, :3].sum(1, keepdim=True)
            loss = F.mse_loss(layers[1](F.relu(layers[0](x))), y)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(parameters)
            optimizer.step()
            time.sleep(0.02)
        print(f"week {week} county {rank} mse {loss.item():.4f}", flush=True)
        if week >= 3:
            count = COUNTIES[rank]
            archive.submit(week, torch.randint(0, 999, (count,), generator=generator).tolist())
        redraw_station_map(0.2 if week < 3 else 1.2)
    archive.drain()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
