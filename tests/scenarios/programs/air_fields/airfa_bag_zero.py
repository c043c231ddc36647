"""Baggage type classifier on belt camera crops (hard shell, soft, stroller, odd size)."""
import argparse
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

KINDS = ("hard", "soft", "stroller", "odd")


def crop_batch(generator, size):
    label = torch.randint(len(KINDS), (size,), generator=generator)
    image = 0.3 * torch.randn(size, 1, 20, 20, generator=generator)
    for i, k in enumerate(label.tolist()):
        image[i, 0, 3 + 3 * k: 8 + 3 * k, 4:16] += 1.0
    return image, label


class BagNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU())
        self.head = nn.Linear(16 * 4 * 4, len(KINDS))

    def forward(self, image):
        return self.head(self.body(image).flatten(1))


class Archive:
    """Keeps the newest snapshot of a run, model and optimizer together."""

    def __init__(self, model, optimizer, folder, every):
        self.model, self.optimizer = model, optimizer
        self.folder, self.every = Path(folder), every
        self.is_writer = dist.get_rank() == 0

    def optimizer_state(self):
        self.optimizer.consolidate_state_dict(to=0)
        return self.optimizer.state_dict()

    def after_step(self, step):
        if step == 0 or step % self.every:
            return
        if self.is_writer:
            snapshot = {"step": step, "model": self.model.module.state_dict(), "optimizer": self.optimizer_state()}
            torch.save(snapshot, self.folder / "latest.pt")
            print(f"step {step}: snapshot written", flush=True)
        dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--save-every", type=int, default=45)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(BagNet())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=2e-3)
    archive = Archive(model, optimizer, tempfile.mkdtemp(prefix="bags-"), args.save_every)
    belt = torch.Generator().manual_seed(50 + dist.get_rank())
    for step in range(args.steps):
        image, label = crop_batch(belt, args.batch)
        time.sleep(0.05)  # the belt delivers some twenty crops a second
        loss = F.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
        archive.after_step(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
