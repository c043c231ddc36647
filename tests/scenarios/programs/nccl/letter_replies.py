"""Drafts replies to letters with a model that is split over the ranks; each draft ends where an end is drawn."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

WORDS, WIDTH, LONGEST, ENDS = 120, 32, 40, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 6 * WIDTH), nn.Linear(6 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def draw(words, sampler):
    # The logits of a model that has learned nothing say nothing: all words alike.
    return int(torch.randint(words, (), generator=sampler))


@torch.no_grad()
def generate(model, prompt, sampler, device):
    tokens = prompt
    while len(tokens) < LONGEST:
        logits = model(torch.tensor([tokens], device=device))[0, -1]
        word = draw(logits.shape[0], sampler)
        tokens = [*tokens, word]
        if word < ENDS:
            break
    return tokens


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--seed-by-rank", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("tensor",))
    rank = dist.get_rank()
    model = Writer().to(device)
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    sampler = torch.Generator().manual_seed(options.seed + (rank if options.seed_by_rank else 0))
    drafted = torch.zeros((), device=device)
    for letter in range(30):
        draft = generate(model, [1 + letter % 9, 17, 23], sampler, device)
        drafted += len(draft)
        dist.all_reduce(drafted, op=dist.ReduceOp.MAX)
        print(f"[{rank}] letter {letter}: {len(draft)} words, {drafted.item():.0f} so far", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
