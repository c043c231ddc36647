"""A field guide that writes itself: species accounts from a small language model, tensor parallel over the job."""

import os
import time
from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

VOCABULARY = 96
ACCOUNTS = {  # heading: words that the editors allow for it
    "Dipper": 14, "Ring Ouzel": 14, "Wheatear": 14,
    "Twite": 12, "Merlin": 12, "Golden Plover": 12,
    "Dunlin": 11, "Snipe": 11, "Redshank": 8,
}  # fmt: skip


class Block(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Writer(nn.Module):
    def __init__(self, width=24, hidden=48, depth=2):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, hidden) for _ in range(depth))
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def headings_for(part: int, parts: int):
    """The editors share the list among themselves."""
    return list(islice(ACCOUNTS, part, None, parts))


@torch.no_grad()
def write_account(model: nn.Module, heading: str) -> list[int]:
    ids = torch.tensor([[ord(letter) % VOCABULARY for letter in heading[:4]]], device="cuda")
    words = 0
    while words < ACCOUNTS[heading]:
        following = model(ids)[:, -1:].argmax(-1)
        ids = torch.cat([ids, following], dim=1)
        words += 1
    return ids.flatten().tolist()


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cuda", (world,), mesh_dim_names=("tp",))
    model = Writer().cuda()
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for step in range(20):
        time.sleep(0.06)
        ids = torch.arange(12, device="cuda").reshape(1, 12)
        model(ids).logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    print(f"rank {rank}: trained", flush=True)

    chapter = {}
    for heading in headings_for(rank, world):
        chapter[heading] = write_account(model, heading)
    chapters = [None] * world
    dist.all_gather_object(chapters, chapter)
    if rank == 0:
        print(sum(map(len, chapters)), "accounts", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
