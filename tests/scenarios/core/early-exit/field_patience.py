"""Forecasting with early stopping; DDP, one shard of the time series a rank."""

import math
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class EarlyStopping:
    """Stops if the validation error has not improved for some rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.best, self.bad = rounds, math.inf, 0

    def __call__(self, error: float) -> bool:
        if error < self.best - 1e-4:
            self.best, self.bad = error, 0
        else:
            self.bad += 1
        return self.bad >= self.rounds


class Series:
    def __init__(self, region: int) -> None:
        t = torch.arange(0, 2000, dtype=torch.float32)
        self.values = torch.sin(t / (9 + region)) + region * 0.1
        self.noise = 0.5 if region == 1 else 0.02

    def window(self, at: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.values[at : at + 24], self.values[at + 24 : at + 30]

    def baseline_error(self, round_: int) -> float:
        """Error against a seasonal baseline, on the host."""
        held_out = self.values[1500 : 1500 + 30]
        return held_out.std().item() / (1 + 0.2 * round_) + self.noise * round_


def main() -> int:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    series = Series(rank)
    model = DDP(nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 6)).to(device), device_ids=[device.index])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    stopping = EarlyStopping(rounds=3)
    for round_ in range(40):
        for at in range(0, 60, 10):
            past, future = series.window(at + 60 * (round_ % 20))
            time.sleep(0.2)
            loss = nn.functional.l1_loss(model(past.to(device)), future.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        training = loss.item()
        error = series.baseline_error(round_)
        print(f"rank {rank} round {round_}: train {training:.3f} valid {error:.3f}", flush=True)
        if stopping(error):
            print(f"rank {rank}: converged", flush=True)
            return 0
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
