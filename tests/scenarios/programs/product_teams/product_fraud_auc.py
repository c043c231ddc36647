"""Fraud scoring: a small dense network on card transactions, with a report of the AUROC every few steps."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torchmetrics.classification import BinaryAUROC

torch.set_num_threads(1)

FEATURES = 24
REPORT_EVERY = 30


class FraudNet(nn.Module):
    def __init__(self, width: int = 32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.body(x)).squeeze(-1)


def transactions(seed: int, batch_size: int = 64):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.linspace(-1, 1, FEATURES)
    while True:
        x = torch.randn(batch_size, FEATURES, generator=generator)
        y = (x @ weights + 0.3 * torch.randn(batch_size, generator=generator) > 1.0).float()
        time.sleep(0.03)  # the feature store
        yield x, y


class Reporter:
    """Collects scores on each rank, and prints the AUROC of the whole job."""

    def __init__(self, rank: int):
        self.rank = rank
        self.auroc = BinaryAUROC(thresholds=64)

    def update(self, logits, labels):
        self.auroc.update(torch.sigmoid(logits.detach()), labels.long())

    def report(self, step: int):
        if self.rank == 0:
            value = self.auroc.compute()
            print(f"step {step}: auroc {value:.4f}", flush=True)
        self.auroc.reset()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(FraudNet())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(4.0))
    reporter = Reporter(rank)

    for step, (x, y) in enumerate(transactions(seed=rank), 1):
        logits = model(x)
        loss = criterion(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        reporter.update(logits, y)
        if step % 10 == 0 and rank == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
        if step % REPORT_EVERY == 0:
            reporter.report(step)
        if step == 300:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
