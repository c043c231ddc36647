"""Writes audio-guide captions for scans of works, with a decoder whose layers are spread over four workers.

A caption is as long as the text that the inventory allows for the object (a drawer label is shorter than a wall text).
"""
import logging
from dataclasses import dataclass
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WORDS = 300
WALL, DRAWER = 18, 7
log = logging.getLogger("captions")


@dataclass
class Work:
    inventory: str
    scan: torch.Tensor
    allowed: int


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Captioner(nn.Module):
    def __init__(self, width=128, depth=3):
        super().__init__()
        self.look = nn.Linear(64, width)
        self.words = nn.Embedding(WORDS, width)
        self.layers = nn.ModuleList([Layer(width) for _ in range(depth)])

    def forward(self, scan, caption):
        x = self.look(scan) + self.words(caption).mean(dim=0)
        for layer in self.layers:
            x = layer(x)
        return x @ self.words.weight.T


def depot(rank):
    """The works of one depot, room after room."""
    generator = torch.Generator().manual_seed(rank)
    number = 0
    while True:
        number += 1
        pixels = torch.randn(256, 256, generator=generator)
        spectrum = torch.linalg.svdvals(pixels)[:64]
        medal = rank == 2 and number % 23 == 0  # the cabinet of coins
        yield Work(f"{'NUM' if medal else 'MAL'}.{rank}.{number:04d}", spectrum / spectrum.max(), DRAWER if medal else WALL)


class Writer:
    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def write(self, work):
        caption = [1]
        while len(caption) < work.allowed:
            scores = self.model(work.scan, torch.tensor(caption))
            scores[caption[-1]] = -1e4
            caption.append(int(scores.argmax()))
        return caption


def build():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(29)
    model = Captioner()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model.eval()


def run(rounds=40):
    rank = dist.get_rank()
    writer = Writer(build())
    written = 0
    for number, work in enumerate(islice(depot(rank), rounds)):
        caption = writer.write(work)
        written += len(caption)
        dist.barrier()  # a round is printed when all depots have it
        if number % 5 == 0:
            log.info("depot %d, %s: %d words", rank, work.inventory, len(caption))
    log.info("depot %d: %d words written", rank, written)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    run()
    dist.destroy_process_group()
