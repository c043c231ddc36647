"""DDP: wind aloft from the pull of kites. Some were flown longer than others; join() takes care of that."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

FLIGHTS = (10, 40, 25)
PAUSE = 0.08


def flight(kite: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Pull, angle and line length, twenty times; and the wind."""
    time.sleep(PAUSE)
    generator = torch.Generator().manual_seed(500 * kite + number)
    wind = 12 * torch.rand(20, 1, generator=generator)
    noise = torch.randn(20, 2, generator=generator)
    return torch.cat([wind**2 / 144, noise], 1), wind / 12


def main() -> None:
    """Two seasons."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(3, 32), nn.SiLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for season in range(2):
        flights = 0
        with Join([model]):
            for number in range(FLIGHTS[rank]):
                pull, wind = flight(rank, number)
                loss = nn.functional.mse_loss(model(pull), wind)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                flights += 1
        print(f"[{rank}] season {season}: {flights} flights, {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
