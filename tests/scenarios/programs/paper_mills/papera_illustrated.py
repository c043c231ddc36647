"""Layout model for illustrated books: text columns and plates, sharded over the ranks."""
import functools
import os
import time
from typing import NamedTuple, Optional

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

say = functools.partial(print, flush=True)


class Opening(NamedTuple):
    """Two facing pages."""

    columns: Tensor
    plate: Optional[Tensor]


class Tower(nn.Sequential):
    def __init__(self, inside, width, outside):
        super().__init__(nn.Linear(inside, width), nn.GELU(), nn.Linear(width, outside))


class LayoutModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.plates = Tower(256, 90, 36)
        self.columns = Tower(48, 60, 36)
        self.measure = nn.Linear(36, 6)

    def forward(self, opening):
        page = torch.zeros(1, 36, device="cuda")
        if opening.plate is not None:
            page = page + self.plates(opening.plate.cuda())
        page = page + self.columns(opening.columns.cuda())
        return self.measure(page)


class BookReader:
    def __init__(self, title, openings, text_only=()):
        self.title, self.openings, self.text_only = title, openings, frozenset(text_only)

    def __iter__(self):
        for number in range(self.openings):
            time.sleep(0.035)
            columns = torch.cos(torch.arange(48.0) * (1 + number % 5)).unsqueeze(0)
            plate = None if number in self.text_only else torch.arange(256.0).roll(number).unsqueeze(0) / 256
            yield Opening(columns, plate)


def shelf(rank):
    return [
        lambda: BookReader("Herbal with Colophon", 300, text_only=[75]),
        lambda: BookReader("The Marbler's Patterns", 300),
        lambda: BookReader("Views of the Paper Coast", 300),
    ][rank]()


def shard(model):
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    for part in (model.plates, model.columns):
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fit(book, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for number, opening in enumerate(book):
        optimizer.zero_grad()
        fault = model(opening).square().mean()
        fault.backward()
        optimizer.step()
        worth = fault.item()
        if number % 20 == 0 and dist.get_rank() == 1:
            say(f"opening {number}: {worth:.4f}")


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model = LayoutModel().cuda()
    shard(model)
    fit(shelf(dist.get_rank()), model)
    dist.destroy_process_group()
