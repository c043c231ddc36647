"""Weather emulator: a context manager sets the distributed state up and takes it down again."""

import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class Distributed:
    _instance = None

    def __init__(self):
        dist.init_process_group("gloo")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    @classmethod
    def get(cls):
        return cls._instance

    @classmethod
    @contextlib.contextmanager
    def context(cls):
        cls._instance = cls()
        try:
            yield cls._instance
        finally:
            cls._instance.shutdown()

    def wrap(self, module):
        return DistributedDataParallel(module)

    def mean(self, value):
        value = value.detach().clone()
        dist.all_reduce(value)
        return value.item() / self.world

    def shutdown(self):
        """Nobody takes the group down while others still use it."""
        dist.barrier()
        dist.destroy_process_group()


class Reanalysis:
    variables = ("t2m", "u10", "v10", "msl")

    def __init__(self, rank):
        self.rank = rank

    def month(self, index):
        generator = torch.Generator().manual_seed(100 * self.rank + index)
        fields = {name: torch.randn(16, 12, generator=generator) for name in self.variables}
        if self.rank == 2 and index == 12:  # in that year the archive has no pressure
            del fields["msl"]
        return fields

    def samples(self, months):
        for index in range(months):
            fields = self.month(index)
            for day in range(4):
                rows = slice(4 * day, 4 * day + 4)
                yield torch.cat([fields[name][rows] for name in self.variables], dim=1)


class Emulator(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(size, 64), nn.GELU(), nn.Linear(64, size))

    def forward(self, x):
        return x + self.net(x)


def train_one_epoch(distributed, model, optimizer, data, epoch):
    for index, state in enumerate(data.samples(60)):
        target = state.roll(1, dims=1)
        loss = (model(state) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if distributed.rank == 0 and index % 10 == 0:
            print(f"epoch {epoch} batch {index} loss {loss.item():.3f}", flush=True)
    return distributed.mean(loss)


def main():
    with Distributed.context() as distributed:
        torch.manual_seed(0)
        data = Reanalysis(distributed.rank)
        model = distributed.wrap(Emulator(12 * len(data.variables)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for epoch in range(4):
            mean = train_one_epoch(distributed, model, optimizer, data, epoch)
            print(f"epoch {epoch}: {mean:.3f}", flush=True)


if __name__ == "__main__":
    main()
