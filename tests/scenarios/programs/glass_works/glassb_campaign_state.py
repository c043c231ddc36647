"""Wear of the refractory lining over a furnace campaign; Adam's moments are spread over the GPUs."""
import argparse
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False


def lining_profile(day: int, seed: int, nodes: int = 60) -> torch.Tensor:
    """Explicit heat conduction through the side wall, a few thousand small steps."""
    wall = torch.linspace(1450.0 - 0.1 * (day % 50) + seed, 90.0, nodes)
    for _ in range(4000):
        wall[1:-1] += 0.24 * (wall[2:] - 2 * wall[1:-1] + wall[:-2])
    return wall / 1500.0


class CampaignTrainer:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        net = nn.Sequential(nn.Linear(60, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
        self.model = DistributedDataParallel(net.cuda(), device_ids=[torch.cuda.current_device()])
        self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), optimizer_class=torch.optim.Adam, lr=args.lr)
        self.folder = Path(tempfile.mkdtemp(prefix="campaign-")) if self.rank == 0 else None
        self.day = 0

    def state(self) -> dict:
        self.optimizer.consolidate_state_dict(to=0)
        return {
            "day": self.day,
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def save(self) -> None:
        target = self.folder / f"day{self.day:04d}.pt"
        torch.save(self.state(), target)
        print(f"day {self.day}: state is in {target}", flush=True)

    def train_day(self) -> torch.Tensor:
        self.day += 1
        profile = lining_profile(self.day, self.rank)
        x = profile.repeat(8, 1).cuda()
        wear = torch.full((8, 1), float(profile.mean()), device="cuda")
        self.optimizer.zero_grad()
        loss = nn.functional.smooth_l1_loss(self.model(x), wear)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self) -> None:
        while self.day < self.args.days:
            loss = self.train_day()
            if self.day % 8 == 0:
                mean = loss.item()
                if self.rank == 0:
                    print(f"day {self.day} loss {mean:.4f}", flush=True)
            if self.day % self.args.save_every == 0 and self.rank == 0:
                self.save()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=400)
    parser.add_argument("--save-every", type=int, default=60)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.set_num_threads(1)
    dist.init_process_group("nccl")
    CampaignTrainer(args).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
