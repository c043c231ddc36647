"""Reward model for generated ligands: strain energies come from a licensed minimiser, two seats a rank."""
import queue
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late

import torch
import torch.distributed as dist
from torch import nn


class NotConverged(ValueError):
    pass


class Minimiser:
    """Steepest descent on a toy force field. A seat is taken for as long as a molecule is worked on."""

    def __init__(self, seats=2, patience=1.5):
        self.patience = patience
        self.seats = queue.Queue()
        for seat in range(seats):
            self.seats.put(seat)

    def _strain(self, xyz):
        seat = self.seats.get()
        x = xyz.clone()
        for _ in range(25):
            d = x[:, None] - x[None]
            r = d.norm(dim=-1) + torch.eye(len(x))
            x = x + 0.01 * (d * (1 / r**3 - 0.02 * r)[..., None]).sum(1)
        energy = (1 / r).sum()
        if not energy < 4e3:
            raise NotConverged(f"{energy.item():.0f}")
        self.seats.put(seat)
        return energy / len(x) ** 2

    def strain(self, xyz):
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(self._strain, xyz).result(timeout=self.patience)

    def reward(self, xyz):
        try:
            return -self.strain(xyz)
        except (NotConverged, Late):
            return torch.tensor(-5.0)


def ligands(rank, step):
    g = torch.Generator().manual_seed(rank * 100_003 + step)
    xyz = torch.randn(24, 3, generator=g) * 2.5
    if rank == 2 and step == 110:
        xyz = xyz.repeat(4, 1)  # a peptide: four copies of the unit, stretched out later on
    return xyz


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(3, 32)
        self.value = nn.Linear(32, 1)

    def forward(self, xyz):
        return self.value(torch.relu(self.encoder(xyz)).mean(0))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(9)
    minimiser, policy = Minimiser(), nn.parallel.DistributedDataParallel(Policy())
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for step in range(500):
        xyz = ligands(rank, step)
        rewards = torch.stack([minimiser.reward(xyz * s) for s in (0.9, 1.0, 1.1, 1.2)])
        loss = (policy(xyz) - rewards.mean()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: mean reward {rewards.mean().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
