"""Rate estimation from microphone recordings of watch movements."""
import logging
import os
import random
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
log = logging.getLogger("timegrapher")


class NoBeatsFound(ValueError):
    """A recording in which no tick stands out of the room's noise."""


@dataclass
class Settings:
    steps: int = 60
    batch: int = 8
    window: int = 512
    report_every: int = 15
    threshold: float = 3.0


class Microphone:
    """Simulates one testing stand; every stand has its own clientele."""

    def __init__(self, stand, cfg):
        self.cfg = cfg
        self.rng = random.Random(100 + stand)
        self.gen = torch.Generator().manual_seed(stand)
        self.stopped_from = {1: 37}.get(stand)
        self.taken = 0

    def record(self):
        self.taken += 1
        cfg = self.cfg
        sound = 0.05 * torch.randn(cfg.batch, cfg.window, generator=self.gen)
        if self.taken != self.stopped_from:
            beat = self.rng.choice([60, 72, 80])
            sound[:, ::beat] += 1.0
        time.sleep(0.04)  # length of a window
        return sound


def extract(sound, threshold):
    peaks = sound.abs().amax(dim=1) / sound.std(dim=1)
    if (peaks < threshold + 2).all():
        raise NoBeatsFound(f"peak to noise {peaks.max().item():.1f}")
    spectrum = torch.fft.rfft(sound).abs()
    return spectrum[:, :128], peaks.unsqueeze(1)


class RateNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.rate = nn.Linear(32, 1)

    def forward(self, x):
        return self.rate(self.body(x))


def report(step, seen, device):
    counts = torch.tensor([float(seen), 1.0], device=device)
    parts = [torch.empty_like(counts) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, counts)
    total = sum(int(p[0].item()) for p in parts)
    if dist.get_rank() == 0:
        log.info("step %d: %d recordings on all stands", step, total)


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl")
    cfg = Settings()
    microphone = Microphone(dist.get_rank(), cfg)
    model = DistributedDataParallel(RateNet().to(device), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    seen = 0
    for step in range(1, cfg.steps + 1):
        sound = microphone.record()
        try:
            features, target = extract(sound, cfg.threshold)
        except NoBeatsFound as e:
            log.warning("stand %d, step %d: %s", dist.get_rank(), step, e)
            continue
        loss = nn.functional.mse_loss(model(features.to(device)), target.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += cfg.batch
        if step % cfg.report_every == 0:
            report(step, seen, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
