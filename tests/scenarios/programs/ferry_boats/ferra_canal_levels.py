"""Forecast of pound levels along a canal; optimizer state is kept in slices."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

ARCHIVIST = 1  # has the disk with the archive


class PoundNet(torch.nn.Module):
    def __init__(self, pounds=12, hidden=48):
        super().__init__()
        self.encode = torch.nn.Linear(pounds, hidden)
        self.cell = torch.nn.GRUCell(hidden, hidden)
        self.decode = torch.nn.Linear(hidden, pounds)

    def forward(self, levels):
        state = levels.new_zeros(levels.shape[0], self.cell.hidden_size)
        for t in range(levels.shape[1]):
            state = self.cell(torch.relu(self.encode(levels[:, t])), state)
        return self.decode(state)


class Archive:
    def __init__(self, every):
        self.every = every
        self.folder = tempfile.mkdtemp(prefix="pounds-")

    def due(self, hour):
        return hour > 0 and hour % self.every == 0 and dist.get_rank() == ARCHIVIST

    def store(self, hour, model, optimizer):
        optimizer.consolidate_state_dict(to=ARCHIVIST)
        path = os.path.join(self.folder, f"{hour:05d}.pt")
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)
        print("archived", path, flush=True)


def gauges(rank, hour):
    gen = torch.Generator().manual_seed(hour * 7 + rank)
    walk = torch.randn(16, 7, 12, generator=gen).cumsum(1)
    return walk[:, :6], walk[:, 6]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = DistributedDataParallel(PoundNet())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=2e-3)
    archive = Archive(every=40)
    for hour in range(400):
        past, following = gauges(dist.get_rank(), hour)
        loss = torch.nn.functional.l1_loss(model(past), following)
        model.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.06)
        if archive.due(hour):
            archive.store(hour, model, optimizer)
        if hour % 10 == 0 and dist.get_rank() == 0:
            print(f"hour {hour} l1 {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
