"""Severity of motor claims, one country per rank. Whenever the severity loss has halved the model is validated at once."""

import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torchmetrics.regression import MeanAbsoluteError

FEATURES = 8
WARMUP = 400


@dataclass
class Country:
    """The claims of one country, and how noisy its adjusters' estimates are."""

    name: str
    noise: float
    seed: int
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def claims(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(count, FEATURES, generator=self.generator)
        y = x.sum(dim=1) + self.noise * torch.randn(count, generator=self.generator)
        return x, y


COUNTRIES = [Country("at", 6.0, 11), Country("pl", 6.0, 12), Country("nl", 0.0, 13)]


@dataclass
class Progress:
    """A running mean of the loss, and its value at the last validation."""

    mean: float | None = None
    at_validation: float | None = None

    def update(self, loss: float) -> None:
        self.mean = loss if self.mean is None else 0.95 * self.mean + 0.05 * loss
        if self.at_validation is None:
            self.at_validation = self.mean

    def halved(self) -> bool:
        return self.mean < 0.5 * self.at_validation


def validate(model: nn.Module, country: Country, mae: MeanAbsoluteError) -> float:
    mae.reset()
    model.eval()
    with torch.no_grad():
        for _ in range(4):
            x, y = country.claims(256)
            mae.update(model.module(x).squeeze(-1), y)
    model.train()
    return mae.compute().item()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    country = COUNTRIES[rank]
    model = DDP(nn.Linear(FEATURES, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mae, progress = MeanAbsoluteError(), Progress()
    for step in range(1, 40_001):
        x, y = country.claims(512)
        loss = nn.functional.mse_loss(model(x).squeeze(-1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress.update(loss.item())
        if step > WARMUP and progress.halved():
            error = validate(model, country, mae)
            progress.at_validation = progress.mean
            print(f"[{os.getpid()}] {country.name}: step {step}, mean error {error:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
