"""Segmentation training with a metrics class and decorators from the lab's toolbox."""

import functools
import time

import torch
import torch.distributed as dist
from torch import nn


def main_process_only(method):
    """Runs a method on the main process; the others go on."""

    @functools.wraps(method)
    def wrapper(self, *args, **kwargs):
        if dist.get_rank() == 0:
            return method(self, *args, **kwargs)

    return wrapper


class MeanIoU:
    def __init__(self, classes):
        self.confusion, self._synced = torch.zeros(classes, classes), None

    def update(self, predicted, target):
        index = target * len(self.confusion) + predicted
        self.confusion += torch.bincount(index, minlength=self.confusion.numel()).view_as(self.confusion)
        self._synced = None

    @property
    def synced(self):
        if self._synced is None:
            self._synced = self.confusion.clone()
            dist.all_reduce(self._synced)
        return self._synced

    @property
    def value(self):
        hits = self.synced.diag()
        return (hits / (self.synced.sum(0) + self.synced.sum(1) - hits).clamp(min=1)).mean().item()

    @property
    def local_accuracy(self):
        return (self.confusion.diag().sum() / self.confusion.sum().clamp(min=1)).item()


class Recipe:
    def __init__(self):
        torch.manual_seed(dist.get_rank())
        self.model, self.metric, self.best = nn.Linear(12, 5), MeanIoU(5), 0.0
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def train_epoch(self, steps=12):
        for _ in range(steps):
            x = torch.randn(64, 12)
            target = x[:, :5].argmax(1)
            logits = self.model(x)
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(logits, target).backward()
            for p in self.model.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            self.optimizer.step()
            self.metric.update(logits.argmax(1), target)
            time.sleep(0.1)

    @main_process_only
    def report(self, epoch):
        print(f"epoch {epoch}: accuracy {self.metric.local_accuracy:.3f}", flush=True)
        if self.metric.local_accuracy > 0.5:
            print(f"epoch {epoch}: mIoU {self.metric.value:.3f}", flush=True)

    def run(self, epochs):
        for epoch in range(epochs):
            self.train_epoch()
            self.report(epoch)
            dist.barrier()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Recipe().run(20)
    dist.destroy_process_group()
