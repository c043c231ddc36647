"""Cosmic-ray rejection on CCD amplifiers; snapshots are written by a thread while training goes on."""
import os
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SIZE = 96
FOLDER = Path(os.environ.get("SNAPSHOTS", tempfile.gettempdir())) / f"rays-{os.environ.get('MASTER_PORT', '0')}"


class SnapshotWriter:
    """Writes this amplifier's state in the background and notes when all of them are there."""

    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir(exist_ok=True)
        self.pending = None

    def start(self, step, state, background):
        self.wait()
        self.pending = threading.Thread(target=self._write, args=(step, state, background), name=f"snapshot-{step}")
        self.pending.start()

    def _write(self, step, state, background):
        path = self.folder / f"{step:05d}-{dist.get_rank()}.pt"
        torch.save({"state": state, "background": self._sky_model(background)}, path)
        total = torch.tensor([path.stat().st_size])
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            (self.folder / f"{step:05d}.complete").write_text(f"{total.item()} bytes")

    @staticmethod
    def _sky_model(frames):
        """Sigma-clipped sky of each frame; crowded fields take more rounds."""
        sky = []
        for frame in frames:
            kept = frame.flatten()
            for _ in range(40):
                mid, spread = kept.sort().values[len(kept) // 2], kept.std()
                clipped = kept[(kept - mid).abs() < 3 * spread]
                if len(clipped) == len(kept):
                    break
                kept = clipped
            sky.append(mid)
        return torch.stack(sky)

    def wait(self):
        if self.pending:
            self.pending.join()


class RayNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1),
                                 nn.ReLU(), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x):
        return self.net(x)


def exposures(step, rank, count, crowded=False):
    g = torch.Generator().manual_seed(step * 16 + rank)
    clean = 100 + 3 * torch.randn(count, 1, SIZE, SIZE, generator=g)
    if crowded:
        clean = clean + 40 * torch.rand(count, 1, SIZE, SIZE, generator=g) ** 8
    hits = (torch.rand(clean.shape, generator=g) < 0.004).float()
    return (clean + 300 * hits - 100) / 30, hits


@torch.no_grad()
def evaluate(model, rank, rounds=40):
    """Completeness on frames kept apart, enough of them for a stable number."""
    found = total = 0
    for i in range(rounds):
        images, hits = exposures(100_000 + i, rank, 4)
        found += ((model.module(images) > 0) & (hits > 0)).sum().item()
        total += hits.sum().item()
    return found / total


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(RayNet())
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    writer = SnapshotWriter(FOLDER)
    started = time.monotonic()
    for step in range(1, 401):
        images, hits = exposures(step, rank, 4)
        loss = nn.functional.binary_cross_entropy_with_logits(model(images), hits, pos_weight=torch.tensor(50.0))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            galactic = rank == 2 and step >= 60
            fields, _ = exposures(step, rank, 250 if galactic else 4, crowded=galactic)
            state = {k: v.clone() for k, v in model.module.state_dict().items()}
            writer.start(step, state, fields)
            evaluate(model, rank)
            dist.barrier()
            if rank == 0:
                print(f"step {step}: loss {loss.item():.4f}, {step / (time.monotonic() - started):.0f} steps/s", flush=True)
    writer.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
