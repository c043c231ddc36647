"""Spot rates of freight lanes: a small regression, trained with DDP on the rate desk's quotes of last year."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EPOCHS = 200
LOG_EVERY = 240


def quotes(count: int = 9216) -> TensorDataset:
    """Distance, weight, fuel index and so on of a lane, and what was paid."""
    generator = torch.Generator().manual_seed(7)
    lanes = torch.randn(count, 24, generator=generator)
    rates = lanes @ torch.linspace(-1, 1, 24) + 0.1 * torch.randn(count, generator=generator)
    return TensorDataset(lanes, rates)


class RateModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(24, 192), nn.GELU(), nn.Linear(192, 192), nn.GELU(), nn.Linear(192, 1))

    def forward(self, lanes: torch.Tensor) -> torch.Tensor:
        return self.body(lanes).squeeze(-1)


class RateLog:
    """Writes one line of the run's CSV every so many steps."""

    def __init__(self, path: str, every: int) -> None:
        self.path = path
        self.every = every

    def spread(self, error: torch.Tensor) -> tuple[float, float]:
        """The best and the worst desk's error."""
        parts = [torch.zeros_like(error) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, error)
        desks = torch.stack(parts)
        return desks.min().item(), desks.max().item()

    def step(self, step: int, error: torch.Tensor) -> None:
        if step % self.every or dist.get_rank() != 0:
            return
        best, worst = self.spread(error)
        with open(self.path, "a") as file:
            file.write(f"{step},{best:.4f},{worst:.4f}\n")
        print(f"step {step}: error {best:.4f} to {worst:.4f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(RateModel())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = quotes()
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(data, batch_size=64, sampler=sampler, drop_last=True)
    log = RateLog(os.path.join(os.environ.get("TMPDIR", "/tmp"), "rates.csv"), LOG_EVERY)
    step = 0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for lanes, rates in loader:
            loss = nn.functional.smooth_l1_loss(model(lanes), rates)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            log.step(step, loss.detach())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
