"""Insurance claims after wildfires: severity model, with portfolio exports by the ranks that hold large policies."""
import contextlib
import json
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@contextlib.contextmanager
def long_operation(hours=3):
    """Work below this may take hours: give it a group with a timeout of its own."""
    group = dist.new_group(backend="gloo", timeout=timedelta(hours=hours))
    try:
        yield group
    finally:
        dist.destroy_process_group(group)


class Portfolio:
    def __init__(self, rank):
        g = torch.Generator().manual_seed(17 + rank)
        self.features = torch.randn(6000, 20, generator=g)
        base = 8.0 if rank != 1 else 9.0
        self.insured = torch.rand(6000, generator=g) * base * 1e5
        self.loss_ratio = torch.sigmoid(self.features[:, :4].sum(1)).unsqueeze(1)

    def batches(self, size):
        for start in range(0, len(self.features), size):
            yield slice(start, start + size)

    def large(self, threshold):
        return torch.nonzero(self.insured > threshold).flatten()


class Exporter:
    def __init__(self, folder, threshold):
        self.folder, self.threshold = Path(folder), threshold

    def __call__(self, model, portfolio, epoch):
        chosen = portfolio.large(self.threshold)
        if not len(chosen):
            return 0
        with long_operation():
            with torch.no_grad():
                expected = model.module(portfolio.features[chosen]).flatten()
            rows = [{"policy": int(i), "expected": float(e)} for i, e in zip(chosen, expected)]
            (self.folder / f"large_{epoch}.json").write_text(json.dumps(rows))
        return len(rows)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DDP(nn.Sequential(nn.Linear(20, 48), nn.GELU(), nn.Linear(48, 1), nn.Sigmoid()))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    portfolio = Portfolio(rank)
    export = Exporter(tempfile.mkdtemp(prefix="claims_"), threshold=8.2e5)
    for epoch in range(40):
        total = 0.0
        for rows in portfolio.batches(60):
            loss = nn.functional.mse_loss(model(portfolio.features[rows]), portfolio.loss_ratio[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} book {rank}: {total / 100:.5f}", flush=True)
        if epoch % 5 == 4:
            print(f"book {rank}: {export(model, portfolio, epoch)} large policies exported", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
