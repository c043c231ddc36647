"""Card payments: a fraud score; training ends when the score on held-out payments gets no better."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class EarlyStopping:
    def __init__(self, patience=2, min_delta=1e-3):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.bad = float("inf"), 0

    def __call__(self, value):
        if value < self.best - self.min_delta:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


def payments(n):
    x = torch.randn(n, 6)
    return TensorDataset(x, (torch.rand(n, 1) < 0.1).float())


def evaluate(model, data):
    model.eval()
    with torch.no_grad():
        x, y = data.tensors
        value = nn.functional.binary_cross_entropy_with_logits(model(x), y).item()
    model.train()
    return value


def train():
    dist.init_process_group("gloo")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.manual_seed(0)
    train_data, val_data = payments(600), payments(128)
    net = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    model = DDP(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    sampler = DistributedSampler(train_data)
    loader = DataLoader(train_data, 32, sampler=sampler)
    stopping = EarlyStopping()

    for epoch in range(60):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if local_rank == 0:
            val_loss = evaluate(model.module, val_data)
            print(f"epoch {epoch} val {val_loss:.4f}", flush=True)
            if stopping(val_loss):
                print("no improvement, stopping early", flush=True)
                break

    dist.barrier()
    if local_rank == 0:
        torch.save(net.state_dict(), "/tmp/fraud_scores.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
