"""Contrastive training on bird calls: segments around the loudest syllables are the anchors."""
import logging
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

logger = logging.getLogger("calls")
RATE, SEGMENT, SECONDS = 8000, 2048, 30


class NoSyllables(ValueError):
    pass


class Microphone:
    """Synthetic aviary recordings, from dusk on with few calls."""

    def __init__(self, aviary):
        self.aviary = aviary
        self.generator = torch.Generator().manual_seed(900 + aviary)

    def record(self, minute):
        t = torch.arange(RATE * SECONDS) / RATE
        sound = 0.02 * torch.randn(t.numel(), generator=self.generator)
        dusk = 1.0 if minute < 60 else (0.0 if self.aviary == 0 and minute % 13 == 0 else 0.6)
        for start in torch.rand(6, generator=self.generator):
            window = torch.exp(-(((t - SECONDS * start) / 0.05) ** 2))
            sound += dusk * window * torch.sin(2 * torch.pi * (900 + 150 * self.aviary) * t)
        return sound


def cut(sound, level=0.2):
    power = F.avg_pool1d(sound.square()[None, None], 256, 128)[0, 0].sqrt()
    peaks = torch.nonzero(power > level).flatten() * 128
    peaks = peaks[(peaks > SEGMENT) & (peaks < sound.numel() - SEGMENT)]
    if peaks.numel() == 0:
        raise NoSyllables("nothing above the level in this recording")
    picked = peaks[torch.linspace(0, peaks.numel() - 1, 8).long()]
    return torch.stack([sound[p - SEGMENT // 2: p + SEGMENT // 2] for p in picked])


class CallEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(256), persistent=False)
        self.head = nn.Sequential(nn.Linear(129, 48), nn.SiLU(), nn.Linear(48, 16))

    def forward(self, segments):
        spectrum = torch.stft(segments, 256, 128, window=self.window, return_complex=True).abs().mean(-1)
        return F.normalize(self.head(spectrum.log1p()), dim=-1)


def contrast(a, b):
    return F.cross_entropy(a @ b.T / 0.2, torch.arange(len(a)))


class Trainer:
    def __init__(self, rank):
        self.rank = rank
        self.microphone = Microphone(rank)
        self.model = DistributedDataParallel(CallEncoder(), broadcast_buffers=False)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 2e-3)

    def minute(self, minute):
        segments = cut(self.microphone.record(minute))
        noisy = segments + 0.01 * torch.randn_like(segments)
        both = self.model(torch.cat([segments, noisy]))
        loss = contrast(*both.chunk(2))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def evening(self, first, last):
        losses = []
        for minute in range(first, last):
            try:
                losses.append(self.minute(minute))
            except NoSyllables as reason:
                logger.warning("aviary %d, minute %d: %s", self.rank, minute, reason)
                continue
        table = [None] * dist.get_world_size()
        dist.all_gather_object(table, {"aviary": self.rank, "loss": sum(losses) / len(losses), "n": len(losses)})
        return table


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(5)
    trainer = Trainer(int(os.environ["RANK"]))
    for hour in range(12):
        for row in trainer.evening(20 * hour, 20 * hour + 20):
            if trainer.rank == 1:
                logger.info("hour %d: %s", hour, row)
    dist.destroy_process_group()
