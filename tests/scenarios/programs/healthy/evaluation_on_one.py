"""Evaluation on rank 0 only, of the module inside DDP, ten times slower than training; the others are at a barrier."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    """A training loop with an evaluation every second epoch."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def train_epoch(self) -> None:
        """Twenty batches."""
        self.model.train()
        for _ in range(20):
            self.optimizer.zero_grad()
            self.model(torch.randn(8, 16)).square().mean().backward()
            self.optimizer.step()
            time.sleep(0.02)

    @torch.no_grad()
    def evaluate(self) -> float:
        """Four seconds of it."""
        self.model.eval()
        losses = []
        for _ in range(40):
            losses.append(self.model.module(torch.randn(64, 16)).square().mean().item())
            time.sleep(0.1)
        return sum(losses) / len(losses)

    def fit(self, epochs: int) -> None:
        """Train and evaluate."""
        for epoch in range(1, epochs + 1):
            self.train_epoch()
            if epoch % 2 == 0:
                if self.rank == 0:
                    print(f"epoch {epoch}: {self.evaluate():.4f}", flush=True)
                dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Trainer().fit(6)
    dist.destroy_process_group()
