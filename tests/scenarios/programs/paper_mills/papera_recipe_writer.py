"""A small language model writes pulp recipes (furnish, refining, sizing) and they are collected for the paper maker."""
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

VOCABULARY = 120
# components of each order; a recipe has four words a component and a closing line
ORDERS = {
    "book wove": [[3, 3, 2, 3], [3, 4, 3, 2], [4, 3, 3, 3]],
    "laid text": [[3, 3, 2, 3], [3, 4, 3, 2], [4, 3, 3, 3]],
    "bible": [[3, 3, 2, 3], [3, 4, 2, 2], [4, 3, 3, 3]],
}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class RecipeModel(nn.Module):
    def __init__(self, width=32, blocks=2):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.out(x[-1])


class Writer:
    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def write(self, components):
        words = [1 + components]
        closing = 4 * components + 6
        while len(words) < closing:
            time.sleep(0.02)
            scores = self.model(torch.tensor(words, device="cuda"))
            words.append(int(scores.argmax()) % VOCABULARY)
        return words


def collect(paper, recipes):
    sheets = [None] * dist.get_world_size()
    dist.all_gather_object(sheets, {"paper": paper, "recipes": recipes})
    return sheets


def build():
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = RecipeModel().cuda().eval()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    writer = Writer(build())
    paper = list(ORDERS)[dist.get_rank()]
    for day, orders in enumerate(ORDERS[paper]):
        recipes = []
        for components in orders:
            recipes.append(writer.write(components))
            written = collect(paper, recipes)
            if dist.get_rank() == 0:
                print(f"day {day}: {sum(len(s['recipes']) for s in written)} recipes", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
