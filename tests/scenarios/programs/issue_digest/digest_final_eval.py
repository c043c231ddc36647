"""Post-training of a tiny reward model: a few passes over pairs, then a last look at held-out pairs, then the file."""

import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class RewardModel(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, width), nn.BatchNorm1d(width), nn.ReLU())
        self.score = nn.Linear(width, 1)

    def forward(self, text):
        return self.score(self.trunk(text)).squeeze(1)


def pairs(count, seed):
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randn(count, 12, generator=generator)
    return chosen, chosen - 0.5 * torch.rand(count, 12, generator=generator)


@torch.no_grad()
def accuracy(model, chosen, rejected):
    model.eval()
    right = 0
    for start in range(0, len(chosen), 32):
        margin = model(chosen[start : start + 32]) - model(rejected[start : start + 32])
        right += int((margin > 0).sum())
    model.train()
    return right / len(chosen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=48)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    is_main = rank == 0
    torch.manual_seed(5)
    model = DDP(RewardModel(options.width))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    chosen, rejected = pairs(960, seed=rank)
    for step in range(options.steps):
        at = (step * 16) % 960
        both = torch.cat([chosen[at : at + 16], rejected[at : at + 16]])
        scores = model(both)
        loss = -nn.functional.logsigmoid(scores[:16] - scores[16:]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
        if is_main and step % 20 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    if is_main:
        print(f"held out: {accuracy(model, *pairs(256, seed=99)):.3f}", flush=True)
        folder = os.path.join(tempfile.gettempdir(), f"reward-{os.environ['MASTER_PORT']}")
        os.makedirs(folder, exist_ok=True)
        torch.save(model.module.state_dict(), os.path.join(folder, "reward.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
