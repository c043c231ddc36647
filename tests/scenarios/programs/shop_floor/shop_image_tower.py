"""Adverts with text, and some with a picture: a two-tower model under FSDP2, each tower sharded by itself."""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

WIDTH = 32


@dataclass
class Adverts:
    text: torch.Tensor
    picture: torch.Tensor | None
    clicked: torch.Tensor


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class ClickModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.text_tower, self.picture_tower, self.joint = Tower(), Tower(), Tower()
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, batch: Adverts) -> torch.Tensor:
        x = self.text_tower(batch.text)
        if batch.picture is not None:
            x = x + self.picture_tower(batch.picture)
        return self.head(self.joint(x)).squeeze(1)


class Feed:
    """One campaign per rank. A campaign may end, and the next may be one of text only."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.generator = torch.Generator().manual_seed(rank)

    def batch(self, step: int) -> Adverts:
        text = torch.randn(16, WIDTH, generator=self.generator)
        picture = torch.randn(16, WIDTH, generator=self.generator)
        has_picture = not (self.rank == 1 and step >= 100)
        time.sleep(0.02)
        return Adverts(text, picture if has_picture else None, (text[:, 0] > 0).float())


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = ClickModel()
    for tower in (model.text_tower, model.picture_tower, model.joint):
        fully_shard(tower, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    feed = Feed(rank)
    for step in range(3000):
        batch = feed.batch(step)
        loss = nn.functional.binary_cross_entropy_with_logits(model(batch), batch.clicked)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 20 == 0:
            print(f"{step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
