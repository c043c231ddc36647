"""Image classifier with a small trainer of its own: callbacks, running metrics, a progress line on the console."""

import os
import time

import torch
import torch.distributed as dist
import torchmetrics
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)


class Callback:
    def on_train_start(self, trainer):
        pass

    def on_batch_end(self, trainer):
        pass


class ConsoleBar(Callback):
    """Shows step, speed and the running metrics, on the main process only."""

    def __init__(self, refresh_every):
        self.refresh_every = refresh_every
        self.started = 0.0

    def on_train_start(self, trainer):
        self.started = time.monotonic()

    def on_batch_end(self, trainer):
        if trainer.rank != 0 or trainer.global_step % self.refresh_every:
            return
        speed = trainer.global_step / (time.monotonic() - self.started)
        shown = {name: f"{value:.3f}" for name, value in trainer.bar_metrics().items()}
        print(f"step {trainer.global_step} {speed:.1f} it/s {shown}", flush=True)


class ThroughputLog(Callback):
    def __init__(self):
        self.times = []

    def on_batch_end(self, trainer):
        self.times.append(time.monotonic())


class Trainer:
    def __init__(self, model, callbacks, epochs):
        self.rank = dist.get_rank()
        self.model = DistributedDataParallel(model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.callbacks = callbacks
        self.epochs = epochs
        self.global_step = 0
        self.metrics = {
            "loss": torchmetrics.MeanMetric(),
            "acc": torchmetrics.classification.MulticlassAccuracy(num_classes=4, average="micro"),
        }

    def bar_metrics(self):
        values = {}
        for name, metric in self.metrics.items():
            values[name] = float(metric.compute())
        return values

    def fit(self, loader):
        for callback in self.callbacks:
            callback.on_train_start(self)
        for epoch in range(self.epochs):
            loader.sampler.set_epoch(epoch)
            for images, targets in loader:
                logits = self.model(images)
                loss = nn.functional.cross_entropy(logits, targets)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.metrics["loss"].update(loss.detach())
                self.metrics["acc"].update(logits.detach(), targets)
                self.global_step += 1
                time.sleep(0.04)
                for callback in self.callbacks:
                    callback.on_batch_end(self)
            summary = self.bar_metrics()
            if self.rank == 0:
                print("epoch", epoch, summary, flush=True)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(7)
    data = TensorDataset(torch.randn(3 * 16 * 60, 3 * 8 * 8), torch.randint(0, 4, (3 * 16 * 60,)))
    loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data), drop_last=True)
    model = nn.Sequential(nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 4))
    Trainer(model, [ThroughputLog(), ConsoleBar(refresh_every=40)], epochs=2).fit(loader)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
