"""Rainfall-runoff regression over gauged catchments, one catchment set per process."""
import logging
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("runoff")


@dataclass
class Settings:
    days: int = 16
    windows: int = 1280
    batch: int = 32
    hidden: int = 256
    lr: float = 2e-3
    spike_factor: float = 8.0


class CatchmentYear(Dataset):
    """Sliding windows of precipitation with the discharge of the day after."""

    def __init__(self, settings, catchment):
        gen = torch.Generator().manual_seed(100 + catchment)
        self.rain = torch.rand(settings.windows, settings.days, generator=gen)
        noise = torch.randn(settings.windows, generator=gen) * 0.4
        self.flow = self.rain.mean(1) * 2.0 + noise
        if catchment == 2:  # alpine: the flash flood of 14 August is in the record
            self.flow[736:768] += 25.0

    def __len__(self):
        return len(self.flow)

    def __getitem__(self, index):
        time.sleep(0.003)  # record read from the archive
        return self.rain[index], self.flow[index]


class SpikeFilter:
    """Running record of losses; anything far above the recent level is an outlier."""

    def __init__(self, factor, window=8):
        self.factor, self.window, self.recent = factor, window, []

    def accepts(self, value):
        if len(self.recent) >= self.window:
            level = sum(self.recent[-self.window:]) / self.window
            if value > self.factor * level:
                return False
        self.recent.append(value)
        return True


def build(settings):
    net = nn.Sequential(nn.Linear(settings.days, settings.hidden), nn.GELU(),
                        nn.Linear(settings.hidden, settings.hidden), nn.GELU(), nn.Linear(settings.hidden, 1))
    return DDP(net)


def train_epoch(model, loader, optimizer, spikes):
    total, used = 0.0, 0
    for step, (rain, flow) in enumerate(loader):
        for _ in range(40):  # evapotranspiration correction, iterated
            rain = rain - 0.001 * torch.tanh(rain @ torch.ones(rain.shape[1], rain.shape[1]))
        loss = nn.functional.mse_loss(model(rain).squeeze(1), flow)
        if not spikes.accepts(loss.item()):
            log.info("step %d: outlier in discharge record, loss %.2f", step, loss.item())
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, used = total + loss.item(), used + 1
    return total / max(used, 1)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    settings = Settings()
    rank = dist.get_rank()
    model = build(settings)
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr)
    loader = DataLoader(CatchmentYear(settings, rank), batch_size=settings.batch)
    spikes = SpikeFilter(settings.spike_factor)
    for epoch in range(6):
        mean = train_epoch(model, loader, optimizer, spikes)
        table = [None] * dist.get_world_size()
        dist.all_gather_object(table, {"catchment": rank, "mse": mean})
        if rank == 0:
            log.info("epoch %d %s", epoch, table)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
