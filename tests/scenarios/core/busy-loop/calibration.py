"""DDP: a classifier of soils, calibrated after training by one temperature for all."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def soils(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Measurements and the kind of soil, of which some are wrong."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, 14, generator=generator)
    kinds = rows[:, :6].argmax(dim=1)
    wrong = torch.rand(count, generator=generator) < 0.3
    return rows, torch.where(wrong, torch.randint(0, 6, (count,), generator=generator), kinds)


def slope(temperature: torch.Tensor, logits: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
    """Of the loss by the temperature."""
    temperature = temperature.clone().requires_grad_()
    loss = nn.functional.cross_entropy(logits / temperature, kinds)
    return torch.autograd.grad(loss, temperature)[0]


def calibrate(logits: torch.Tensor, kinds: torch.Tensor, precision: float = 1e-9) -> torch.Tensor:
    """The temperature with the lowest loss, by halving."""
    low, high = torch.tensor(0.5), torch.tensor(8.0)
    while high - low > precision:
        middle = (low + high) / 2
        if slope(middle, logits, kinds) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def main() -> None:
    """A hundred steps, and the calibration."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(14, 48), nn.ReLU(), nn.Linear(48, 6))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    rows, kinds = soils(600, seed=1)
    for step in range(100):
        picked = torch.arange(rank + step * 8, rank + step * 8 + 24 * world, world) % len(rows)
        loss = nn.functional.cross_entropy(model(rows[picked]), kinds[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    temperature = torch.ones(())
    if rank == 0:
        held_out, truth = soils(200, seed=2)
        with torch.no_grad():
            logits = net(held_out)
        temperature = calibrate(logits, truth)
    dist.broadcast(temperature, src=0)
    print(f"[{rank}] temperature {temperature.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
