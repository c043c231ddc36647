"""Sharded embedding tables beside a replicated dense part: one process group for each kind of communication."""

import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn


class Planner:
    """Decides from the memory of the last steps what is exchanged first."""

    def __init__(self, budget: int) -> None:
        self.budget, self.used = budget, 0

    def account(self, lookups: torch.Tensor) -> None:
        self.used += int(lookups.numel())

    def plan(self, rows: Callable[[], torch.Tensor], dense: Callable[[], list]) -> list[Callable]:
        return [rows, dense] if self.used < self.budget else [dense, rows]


def lookups(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    length = int(torch.randint(20, 30, (1,), generator=generator)) + (6 if rank == 1 else 0)
    time.sleep(0.25)
    return torch.randint(0, 64, (length,), generator=generator)


class Model:
    def __init__(self, device: torch.device, shard: dist.ProcessGroup, replicate: dist.ProcessGroup) -> None:
        self.device, self.shard, self.replicate = device, shard, replicate
        self.world = dist.get_world_size()
        self.table = torch.zeros(64, 16, device=device)
        self.dense = nn.Linear(16, 16, device=device)
        self.planner = Planner(budget=480)

    def rows(self, wanted: torch.Tensor) -> torch.Tensor:
        counts = torch.bincount(wanted % self.world, minlength=self.world).to(self.device)
        sizes = torch.empty_like(counts)
        dist.all_to_all_single(sizes, counts, group=self.shard)
        return self.table[: sum(sizes.tolist())]

    def sync(self) -> list:
        flags = torch.stack([p.detach().abs().max() for p in self.dense.parameters()]).double()
        dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self.replicate)
        return flags.tolist()

    def step(self, wanted: torch.Tensor) -> None:
        for action in self.planner.plan(lambda: self.rows(wanted), self.sync):
            action()
        self.planner.account(wanted)


def main() -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world = dist.get_rank(), dist.get_world_size()
    shard = dist.new_group(range(world), group_desc="mesh_shard")
    replicate = dist.new_group(range(world), group_desc="mesh_replicate")
    model = Model(device, shard, replicate)
    for step in range(150):
        model.step(lookups(rank, step))
        if rank == 0 and step % 4 == 0:
            print(f"step {step}: {model.planner.used} lookups", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
