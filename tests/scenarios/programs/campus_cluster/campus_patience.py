"""EEG motor imagery (NEURO 610): leave-subjects-out training with early stopping."""

import copy
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@dataclass
class EarlyStopping:
    patience: int = 3
    best: float = float("inf")
    bad_epochs: int = 0
    weights: dict = field(default_factory=dict)

    def update(self, loss: float, model: nn.Module) -> bool:
        if loss < self.best:
            self.best, self.bad_epochs = loss, 0
            self.weights = copy.deepcopy(model.state_dict())
        else:
            self.bad_epochs += 1
        return self.bad_epochs >= self.patience


def subject(number: int, trials: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Band power of eight electrodes. Subject 12 moved the other hand, as it turned out."""
    rng = torch.Generator().manual_seed(number)
    side = torch.randint(0, 2, (trials,), generator=rng)
    power = torch.randn(trials, 8, generator=rng) + torch.outer(2.0 * side - 1, torch.linspace(-1, 1, 8))
    return power, 1 - side if number == 12 else side


class Experiment:
    def __init__(self, rank: int) -> None:
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ELU(), nn.Linear(16, 2)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
        self.train_set = subject(rank, 160)
        self.validation_set = subject(10 + rank, 80)
        self.stopping = EarlyStopping()

    def train(self, batch: int = 16) -> None:
        for x, y in zip(self.train_set[0].split(batch), self.train_set[1].split(batch)):
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
            time.sleep(0.05)

    @torch.no_grad()
    def validate(self) -> float:
        x, y = self.validation_set
        return nn.functional.cross_entropy(self.model.module(x), y).item()

    def run(self, epochs: int) -> dict:
        for epoch in range(epochs):
            self.train()
            if self.stopping.update(self.validate(), self.model.module):
                break
        self.model.module.load_state_dict(self.stopping.weights)
        return {"epochs": epoch + 1, "loss": self.stopping.best}


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mine = Experiment(dist.get_rank()).run(epochs=200)
    results = [None] * dist.get_world_size()
    dist.all_gather_object(results, mine)
    if dist.get_rank() == 0:
        print(results, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
