"""Trains a thermostat model and archives each rank's measurement cache on the NAS."""
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Archive:
    """Writes in chunks and syncs each of them; the NAS takes about five chunks a second."""

    def __init__(self, rank, chunk=256 * 1024):
        self.path = os.path.join(tempfile.mkdtemp(prefix="nas-"), f"cache-rank{rank}.bin")
        self.chunk, self.rank = chunk, rank

    def write(self, cache, chunks=64):
        data = cache.numpy().tobytes()
        with open(self.path, "wb") as out:
            for number in range(chunks):
                out.write(data[:self.chunk])
                out.flush()
                os.fsync(out.fileno())
                time.sleep(0.2)
                if number % 16 == 0:
                    print(f"rank {self.rank}: {out.tell() >> 10} KiB archived", flush=True)
        size = os.path.getsize(self.path)
        os.unlink(self.path)
        return size


class Room(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(5, 12)
        self.out = nn.Linear(12, 1)

    def forward(self, x):
        state = x.new_zeros(len(x), 12)
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        return self.out(state)


def epoch(model, optimizer, generator, steps):
    for _ in range(steps):
        x = torch.randn(8, 6, 5, generator=generator)
        loss = (model(x).squeeze(-1) - x[:, -1].mean(-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
    return loss.item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Room())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    epoch(model, optimizer, generator, 40)
    written = torch.tensor([Archive(rank).write(torch.zeros(65536))])
    dist.all_reduce(written)
    loss = epoch(model, optimizer, generator, 60)
    print(f"rank {rank}: loss {loss:.3f}, {written.item() >> 20} MiB in the archive", flush=True)
    dist.destroy_process_group()
