"""Restores archive reels of ballets, and encodes a preview of each reel after every act."""
import logging
import subprocess
import sys
from collections import namedtuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

Reel = namedtuple("Reel", "title year pixels")
REELS = (Reel("Giselle", 1958, "yuv420p"), Reel("Petrushka", 1971, "yuv420p"), Reel("Raymonda", 1964, "yuvj420p"))
FRAME = 8 * 8

# stands in for the encoder of the archive
ENCODER = r"""
import sys
pixels, title = sys.argv[1:]
reel = sys.stdin.buffer.read()
for number in range(len(reel) // 64):
    if pixels.startswith("yuvj"):
        sys.stderr.write(f"[swscaler @ 0x55d0c8] frame {number}: deprecated pixel format used, make sure you did set range correctly\n")
print(title, len(reel))
"""
logger = logging.getLogger("reels")


class PreviewEncoder:
    def __init__(self, reel):
        self.reel = reel
        self.diagnostics = None

    def encode(self, frames):
        command = [sys.executable, "-c", ENCODER, self.reel.pixels, self.reel.title]
        proc = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        proc.stdin.write(frames)
        proc.stdin.close()
        status = proc.wait()
        self.diagnostics = proc.stderr.read().decode()
        return status


class Restorer(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, 1, 3, padding=1)
        )

    def forward(self, x):
        return x - self.net(x)


def frames_of(reel, act, count=24):
    generator = torch.Generator().manual_seed(reel.year * 100 + act)
    while True:
        clean = torch.rand(count, 1, 64, 64, generator=generator)
        for _ in range(6):
            clean = torch.fft.irfft2(torch.fft.rfft2(clean) * 0.99, s=(64, 64))
        scratches = (torch.rand(count, 1, 1, 64, generator=generator) > 0.97).float()
        yield clean + scratches, clean


def act(number, reel, model, optimizer, steps):
    source = frames_of(reel, number)
    for _ in range(steps):
        scratched, clean = next(source)
        loss = nn.functional.l1_loss(model(scratched), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def preview(model, reel, frames=1400):
    raw = torch.rand(frames, 1, 8, 8)
    with torch.no_grad():
        restored = model.module(raw).clamp(0, 1)
    return PreviewEncoder(reel).encode((restored * 255).to(torch.uint8).numpy().tobytes())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    reel = REELS[dist.get_rank()]
    torch.manual_seed(17)
    model = DDP(Restorer())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for number in (1, 2, 3):
        loss = act(number, reel, model, optimizer, steps=120)
        logger.info("%s (%d), act %d: loss %.4f", reel.title, reel.year, number, loss)
        logger.info("%s: preview of act %d, status %d", reel.title, number, preview(model, reel))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
