"""Demand forecasts: one model for all regions, one region a rank, with callbacks as in our trainer library."""

import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)

REGIONS = {"north": 1.0, "islands": 0.002, "south": 1.4}  # and the usual size of an order there


class StopTraining(Exception):
    pass


class Callback:
    def on_epoch_end(self, trainer, metrics): ...


class Print(Callback):
    def on_epoch_end(self, trainer, metrics):
        print(f"{trainer.region}: epoch {trainer.epoch} {metrics}", flush=True)


class EarlyStopping(Callback):
    def __init__(self, monitor="val_loss", patience=5, min_delta=0.05):
        self.monitor, self.patience, self.min_delta = monitor, patience, min_delta
        self.best, self.bad_epochs = float("inf"), 0

    def on_epoch_end(self, trainer, metrics):
        value = metrics[self.monitor]
        if value < self.best - self.min_delta:
            self.best, self.bad_epochs = value, 0
            return
        self.bad_epochs += 1
        if self.bad_epochs >= self.patience:
            raise StopTraining(f"{self.monitor} has not improved for {self.patience} epochs")


class Trainer:
    def __init__(self, model, region, scale, callbacks):
        self.model = nn.parallel.DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.002)
        self.region, self.scale, self.callbacks, self.epoch = region, scale, callbacks, 0
        self.generator = torch.Generator().manual_seed(len(region))

    def orders(self, n=64):
        x = torch.randn(n, 14, generator=self.generator) * self.scale
        return x, x @ torch.ones(14)

    def train_epoch(self):
        for _ in range(10):
            x, y = self.orders()
            time.sleep(0.04)
            self.optimizer.zero_grad()
            loss = (self.model(x).squeeze(-1) - y).square().mean()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        x, y = self.orders(256)
        return (self.model.module(x).squeeze(-1) - y).square().mean().item()

    def fit(self, epochs):
        try:
            for self.epoch in range(epochs):
                self.train_epoch()
                metrics = {"val_loss": self.validate()}
                for callback in self.callbacks:
                    callback.on_epoch_end(self, metrics)
        except StopTraining as reason:
            print(f"{self.region}: stopped: {reason}", flush=True)
        return metrics


def main():
    dist.init_process_group("gloo")
    region, scale = list(REGIONS.items())[dist.get_rank()]
    torch.manual_seed(0)
    trainer = Trainer(nn.Linear(14, 1), region, scale, [Print(), EarlyStopping()])
    final = trainer.fit(epochs=40)
    summaries = [None] * dist.get_world_size()
    dist.all_gather_object(summaries, {"region": region, **final})
    if dist.get_rank() == 0:
        print(summaries)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
