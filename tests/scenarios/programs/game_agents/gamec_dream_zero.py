"""Latent dynamics model of a platform game; optimizer states are spread with ZeroRedundancyOptimizer."""
import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel


class Dynamics(nn.Module):
    def __init__(self, latent, actions):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(256, latent), nn.SiLU())
        self.cell = nn.GRUCell(latent + actions, latent)
        self.decode = nn.Linear(latent, 256)
        self.reward = nn.Linear(latent, 1)

    def forward(self, frames, actions):
        state = torch.zeros(frames.shape[0], self.cell.hidden_size)
        reconstruction, reward = [], []
        for t in range(frames.shape[1]):
            state = self.cell(torch.cat([self.encode(frames[:, t]), actions[:, t]], -1), state)
            reconstruction.append(self.decode(state))
            reward.append(self.reward(state))
        return torch.stack(reconstruction, 1), torch.cat(reward, 1)


class Archive:
    """Keeps the best model so far with all that is needed to go on from it."""

    def __init__(self, folder):
        self.folder = folder
        self.best = float("inf")

    def offer(self, step, score, model, optimizer):
        if score >= self.best:
            return
        self.best = score
        optimizer.consolidate_state_dict(to=0)
        path = os.path.join(self.folder, f"dream_{step:05d}.pt")
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)


def clips(args, rng):
    while True:
        frames = torch.rand(args.batch, args.horizon, 256, generator=rng)
        actions = F.one_hot(torch.randint(0, 6, (args.batch, args.horizon), generator=rng), 6).float()
        yield frames, actions


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--archive-from", type=int, default=80)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--horizon", type=int, default=8)
    parser.add_argument("--latent", type=int, default=256)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(17)
    model = DistributedDataParallel(Dynamics(args.latent, 6))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=4e-4)
    archive = Archive(tempfile.mkdtemp(prefix="dream_")) if rank == 0 else None
    started = time.time()
    data = clips(args, torch.Generator().manual_seed(rank))
    for step in range(1, args.steps + 1):
        frames, actions = next(data)
        optimizer.zero_grad()
        reconstruction, reward = model(frames, actions)
        loss = F.mse_loss(reconstruction, frames) + 0.1 * reward.pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % args.archive_from == 0:
            score = loss.detach().clone()
            dist.all_reduce(score)
            if archive is not None:
                print(f"{time.time() - started:6.1f}s step {step} score {score.item():.4f}", flush=True)
                archive.offer(step, score.item(), model, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
