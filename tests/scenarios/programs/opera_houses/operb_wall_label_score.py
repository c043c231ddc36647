"""Scores the wall labels of each room with a language model whose blocks are sharded over the workers."""
import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

VOCABULARY = 512
ROOMS = ["antiquity", "gothic", "baroque", "salon", "modern", "loans", "foyer"]
# mean words of a label, by the institution that wrote it
HOUSE_STYLE = {"antiquity": (40, 40, 40), "loans": (40, 31, 40)}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        past = x.cumsum(dim=1) / torch.arange(1, x.shape[1] + 1).view(1, -1, 1)
        return x + self.out(torch.relu(self.mix(past)))


class LabelModel(nn.Module):
    def __init__(self, width=96, depth=3):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def labels(room, share, generator, count=24):
    words = HOUSE_STYLE.get(room, HOUSE_STYLE["antiquity"])[share]
    for _ in range(count):
        time.sleep(0.02)  # the catalogue serves about fifty records a second
        yield torch.randint(VOCABULARY, (words,), generator=generator)


def packed(stream, length):
    """Concatenates labels, and cuts them into rows of one length."""
    rest = torch.empty(0, dtype=torch.long)
    for tokens in stream:
        rest = torch.cat([rest, tokens])
        while len(rest) > length:
            yield rest[: length + 1].unsqueeze(0)
            rest = rest[length:]


@torch.no_grad()
def score(model, room, share, generator, length):
    total = torch.zeros(2, dtype=torch.float64)
    for row in packed(labels(room, share, generator), length):
        logits = model(row[:, :-1])
        nats = nn.functional.cross_entropy(logits.flatten(0, 1), row[:, 1:].flatten(), reduction="sum")
        total += torch.tensor([nats.item(), row.numel() - 1.0], dtype=torch.float64)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--length", type=int, default=48)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(5)
    model = LabelModel()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.eval()
    generator = torch.Generator().manual_seed(1000 + rank)
    for room in ROOMS:
        nats = score(model, room, rank % 3, generator, arguments.length)
        if rank == 0:
            print(f"{room}: {nats:.3f} nats a word", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
