"""Berth occupancy classifier; evaluation streams the port call records of each terminal."""
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

CALLS_PER_TERMINAL = {"north": 96, "east": 120, "oil": 120}


class PortCalls(IterableDataset):
    """Port calls of one terminal, in order of arrival."""

    def __init__(self, terminal):
        self.terminal = terminal

    def __iter__(self):
        g = torch.Generator().manual_seed(len(self.terminal))
        for _ in range(CALLS_PER_TERMINAL[self.terminal]):
            x = torch.randn(12, generator=g)
            yield x, (x[:4].sum() > 0).long()


def train(acc, model, opt, loader, epochs):
    model.train()
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            acc.backward(loss)
            opt.step()
            time.sleep(0.02)
        acc.print(f"epoch {epoch} loss {loss.item():.3f}")


@torch.no_grad()
def evaluate(acc, model, loader):
    model.eval()
    hits = total = 0
    for x, y in loader:
        guess = acc.unwrap_model(model)(x).argmax(1)
        pairs = acc.gather(torch.stack([guess, y], 1))
        hits += int((pairs[:, 0] == pairs[:, 1]).sum())
        total += len(pairs)
    return hits / total


def main():
    acc = Accelerator(cpu=True)
    torch.manual_seed(3)
    x = torch.randn(2304, 12)
    y = (x[:, :4].sum(1) > 0).long()
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    model, opt, loader = acc.prepare(model, opt, DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True))
    terminal = sorted(CALLS_PER_TERMINAL, reverse=True)[acc.process_index]
    calls = DataLoader(PortCalls(terminal), batch_size=24)
    train(acc, model, opt, loader, epochs=2)
    accuracy = evaluate(acc, model, calls)
    acc.wait_for_everyone()
    acc.print(f"berth accuracy {accuracy:.3f}")
    acc.end_training()


if __name__ == "__main__":
    main()
