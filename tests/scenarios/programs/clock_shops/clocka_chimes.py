"""Chimes are rendered by an external converter every so often, and scored by the current model."""
import logging
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

logger = logging.getLogger("chimes")

CONVERTER = r"""
import sys
frames = int(sys.argv[1])
quality = float(sys.argv[2])
for n in range(frames):
    if quality > 0.8:
        print(f"[warn] frame {n:06d}: overshoot, clipped to full scale (quality={quality:.2f})", file=sys.stderr)
sys.stdout.write("RIFF" + "0" * 64)
"""


class Renderer:
    def __init__(self, frames):
        self.frames = frames

    def __call__(self, quality):
        command = [sys.executable, "-c", CONVERTER, str(self.frames), f"{quality:.2f}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        status = process.wait()
        data = process.stdout.read()
        return len(data) if status == 0 else 0


class Quality(dict):
    """Requested quality by rank, raised in the course of the training."""

    def at(self, rank, step):
        base = self.get(rank, 0.5)
        return min(base + 0.005 * step, 0.95)


def gongs(gen, n=10):
    pitch = torch.rand(n, 1, generator=gen) * 400 + 100
    t = torch.linspace(0, 1, 64).unsqueeze(0)
    partials = sum(torch.sin(pitch * t * k) / k for k in range(1, 6))
    time.sleep(0.04)
    return partials, pitch / 500


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    render = Renderer(frames=1500)
    quality = Quality({0: 0.40, 1: 0.62, 2: 0.45, 3: 0.50})
    gen = torch.Generator().manual_seed(rank)
    w1 = torch.randn(64, 32).to(device).requires_grad_()
    w2 = torch.randn(32, 1).to(device).requires_grad_()
    weights = [w1, w2]
    for w in weights:
        dist.broadcast(w.data, src=0)
    for step in range(160):
        sound, pitch = gongs(gen)
        out = torch.tanh(sound.to(device) @ w1) @ w2
        loss = F.mse_loss(out, pitch.to(device))
        grads = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for w, g in zip(weights, grads):
                dist.all_reduce(g)
                w.sub_(0.01 * g / dist.get_world_size())
        if step % 10 == 9:
            size = torch.tensor([render(quality.at(rank, step))], device=device)
            dist.all_reduce(size)
            total = size.item()
            if rank == 0:
                logger.info("step %d: %d bytes rendered", step, total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
