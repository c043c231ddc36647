"""Offer ranking with the optimizer's state spread over the ranks, and a checkpoint now and then."""

import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


class TwoTower(nn.Module):
    def __init__(self, users=50, offers=80, width=16):
        super().__init__()
        self.user = nn.Embedding(users, width)
        self.offer = nn.Embedding(offers, width)
        self.bias = nn.Linear(width, 1)

    def forward(self, user, offer):
        return self.bias(self.user(user) * self.offer(offer)).squeeze(-1)


class Checkpoints:
    def __init__(self, rank, every):
        self.rank, self.every = rank, every
        self.folder = pathlib.Path(tempfile.gettempdir()) / f"ranking_{os.environ.get('MASTER_PORT', '0')}"
        self.folder.mkdir(exist_ok=True)

    def __call__(self, step, model, optimizer):
        if step % self.every or self.rank != 0:
            return
        optimizer.consolidate_state_dict(to=0)
        state = {"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, self.folder / f"step_{step:05d}.pt")
        print(f"saved step {step}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(TwoTower())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    save = Checkpoints(rank, every=40)
    data = torch.Generator().manual_seed(rank)
    for step in range(1, 300):
        time.sleep(0.03)
        user = torch.randint(50, (64,), generator=data)
        offer = torch.randint(80, (64,), generator=data)
        clicked = ((user + offer) % 3 == 0).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(user, offer), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        save(step, model, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
