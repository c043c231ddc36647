"""Dose-response regression with scores of torchmetrics; prints a table of the scores every other epoch."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchmetrics import MeanAbsoluteError, MeanSquaredError, MetricCollection

torch.set_num_threads(1)


class Responses:
    """Compounds by concentrations, with the viability that the plate reader gave."""

    def __init__(self, rank, batches=12, size=16):
        generator = torch.Generator().manual_seed(100 + rank)
        self.batches = [torch.randn(size, 20, generator=generator) for _ in range(batches)]

    def __iter__(self):
        for features in self.batches:
            time.sleep(0.03)
            yield features, torch.sigmoid(features[:, 0] - 0.5 * features[:, 1])


class Experiment:
    def __init__(self, epochs, report_every):
        self.rank = dist.get_rank()
        self.epochs, self.report_every = epochs, report_every
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.train_data = Responses(self.rank)
        self.held_out = Responses(self.rank + 50, batches=4)
        self.scores = MetricCollection({"mae": MeanAbsoluteError(), "mse": MeanSquaredError()})

    def train_epoch(self):
        self.model.train()
        for features, viability in self.train_data:
            loss = nn.functional.mse_loss(self.model(features).squeeze(1), viability)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        for features, viability in self.held_out:
            self.scores.update(self.model.module(features).squeeze(1), viability)

    def table(self, epoch):
        values = self.scores.compute()
        return f"epoch {epoch:3d}  " + "  ".join(f"{name} {value:.4f}" for name, value in values.items())

    def run(self):
        for epoch in range(1, self.epochs + 1):
            self.train_epoch()
            self.validate()
            if epoch % self.report_every == 0 and self.rank == 0:
                print(self.table(epoch), flush=True)
            self.scores.reset()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Experiment(epochs=40, report_every=3).run()
    dist.barrier()
    dist.destroy_process_group()
