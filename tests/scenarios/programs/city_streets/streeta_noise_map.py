"""Street noise levels from microphone clips, one shard of the sensors per GPU."""

import argparse
import logging
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("noise")


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--sensors", type=int, default=587)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--epochs", type=int, default=5)
    return p.parse_args()


class Clips(Dataset):
    """A quarter of a second of sound per sensor, turned into band levels."""

    RATE = 16000
    LAYERS = 80

    def __init__(self, sensors):
        self.sensors = sensors
        self.window = torch.hann_window(self.RATE // 4)

    def __len__(self):
        return len(self.sensors)

    def __getitem__(self, i):
        sensor = self.sensors[i]
        g = torch.Generator().manual_seed(sensor)
        level = 0.0
        for _ in range(self.LAYERS):
            sound = torch.randn(self.RATE // 4, generator=g) * (1 + sensor % 7)
            power = torch.fft.rfft(sound * self.window).abs().pow(2)
            bands = power[:2000].view(20, 100).mean(1).log10()
            level += bands.mean().item() / self.LAYERS
        return bands, torch.tensor([level])


class LevelNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(20, 32)
        self.outer = torch.nn.Linear(32, 1)

    def forward(self, bands):
        return self.outer(F.relu(self.inner(bands)))


def train_epoch(model, loader, optimizer, device):
    for step, (bands, level) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.mse_loss(model(bands.to(device)), level.to(device))
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            log.info("step %d of %d, loss %.3f", step, len(loader), loss.item())
    torch.cuda.synchronize()


def city_report(seen, device):
    mine = torch.tensor([seen, math.ceil(seen / 3)], dtype=torch.int64, device=device)
    rows = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, mine)
    return torch.stack(rows).cpu().tolist()


def main():
    args = parse()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.backends.cudnn.enabled = False
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    sensors = list(range(args.sensors))[rank::world]
    loader = DataLoader(Clips(sensors), batch_size=args.batch, shuffle=True, drop_last=True)
    model = DDP(LevelNet().to(device), device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        train_epoch(model, loader, optimizer, device)
        table = city_report(len(loader) * args.batch, device)
        if rank == 0:
            log.info("epoch %d: clips by shard %s", epoch, table)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
