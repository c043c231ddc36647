"""Sound level model for the microphone posts of the city, one cluster of posts per process."""
import logging
import math
import os
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
log = logging.getLogger("noise")

# cluster -> (districts, mean level by day, mean level by night), dB(A)
CLUSTERS = [
    (("harbour", "ring road"), 72.0, 69.0),
    (("central station", "market"), 71.0, 68.5),
    (("hillside", "gardens"), 68.0, 51.0),
]
LIMIT = 65.0


class Posts:
    """Levels and band spectra of one cluster; half an hour per step, beginning at noon."""

    def __init__(self, rank, batch=48, samples=131072):
        self.districts, self.day, self.night = CLUSTERS[rank % len(CLUSTERS)]
        self.generator = torch.Generator().manual_seed(100 + rank)
        self.batch, self.samples = batch, samples

    def read(self, step):
        hour = (12 + step / 2) % 24
        base = self.night if hour >= 22 or hour < 5 else self.day
        wave = torch.randn(self.batch, self.samples, generator=self.generator)
        power = torch.fft.rfft(wave).abs()[:, 1:].reshape(self.batch, 64, -1).mean(-1)
        levels = base + torch.rand(self.batch, generator=self.generator) * 2 - 1
        return hour, levels, torch.log1p(power)


class ExceedanceBook:
    """Collects what was above the limit, by district, for the report to the environmental office."""

    def __init__(self, world):
        self.world = world
        self.events = defaultdict(list)

    def note(self, district, hour, level):
        if level > LIMIT:
            self.events[district].append((round(hour, 1), round(level, 1)))

    def city_report(self):
        if not self.events:
            return {}
        books = [None] * self.world
        dist.all_gather_object(books, dict(self.events))
        self.events.clear()
        return {name: max(level for _, level in rows) for book in books for name, rows in book.items()}


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(7)

    net = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 1)).to(device)
    model = DDP(net, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    posts, book = Posts(rank), ExceedanceBook(world)

    for step in range(400):
        hour, levels, spectra = posts.read(step)
        for i, level in enumerate(levels.tolist()):
            book.note(posts.districts[i % len(posts.districts)], hour, level)
        prediction = model(spectra.to(device)).squeeze(-1)
        loss = nn.functional.mse_loss(prediction, levels.to(device) / 100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
        if step % 10 == 9:
            report = book.city_report()
            if rank == 0:
                peak = max(report.values(), default=math.nan)
                log.info("step %d, %04.1f h, loss %.3g, %d districts above the limit, peak %.1f dB", step, hour, value, len(report), peak)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
