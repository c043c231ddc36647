"""Binary classifier with torchmetrics; the best epoch by AUROC is kept."""
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC

FOLDER = Path("/tmp/night-auroc")


class Recipe:
    def __init__(self):
        self.rank = dist.get_rank()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
        self.model = DDP(self.net)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=3e-3)
        self.metrics = MetricCollection({"accuracy": BinaryAccuracy(), "auroc": BinaryAUROC(thresholds=20)})
        self.best = 0.0

    def data(self, count, seed):
        generator = torch.Generator().manual_seed(seed * 31 + self.rank)
        for _ in range(count):
            x = torch.randn(32, 10, generator=generator)
            yield x, (x[:, :4].sum(1) > 0).float()

    def train_epoch(self, epoch):
        for x, y in self.data(25, seed=epoch):
            loss = nn.functional.binary_cross_entropy_with_logits(self.model(x).squeeze(1), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            time.sleep(0.07)
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.metrics.reset()
        for x, y in self.data(8, seed=999):
            self.metrics.update(self.net(x).squeeze(1).sigmoid(), y.long())

    def keep_best(self, epoch):
        """Only one process writes files."""
        if self.rank != 0:
            return
        values = self.metrics.compute()
        print(f"epoch {epoch}", {name: round(value.item(), 4) for name, value in values.items()}, flush=True)
        if values["auroc"] > self.best:
            self.best = values["auroc"].item()
            FOLDER.mkdir(exist_ok=True)
            torch.save(self.net.state_dict(), FOLDER / "best.pt")

    def run(self, epochs):
        for epoch in range(epochs):
            loss = self.train_epoch(epoch)
            print(f"rank {self.rank} epoch {epoch} loss {loss:.4f}", flush=True)
            self.validate()
            self.keep_best(epoch)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Recipe().run(40)
    dist.destroy_process_group()
