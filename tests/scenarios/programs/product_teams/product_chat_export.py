"""SFT of a small chat model on FSDP2. The best model so far is exported for the serving team."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)

VOCABULARY, WIDTH = 96, 32


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        mixed = x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[None, :, None]
        return x + self.down(F.silu(self.up(self.norm(mixed))))


class ChatModel(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def dialogues(rank, n, seed=0):
    g = torch.Generator().manual_seed(seed * 97 + rank)
    for _ in range(n):
        time.sleep(0.03)
        yield torch.randint(VOCABULARY, (4, 16), generator=g) // 3


def loss_of(model, ids):
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def export(model, path: Path):
    """Write the whole model as one file."""
    dist.barrier()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=options)
    if weights:
        torch.save(weights, path)
        print(f"exported {len(weights)} tensors to {path}", flush=True)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    model = ChatModel()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    best = float("inf")
    target = Path(tempfile.gettempdir(), f"chat-{os.environ['MASTER_PORT']}.pt")
    for epoch in range(10):
        for ids in dialogues(rank, 30, seed=epoch):
            loss = loss_of(model, ids)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            validation = sum(loss_of(model, ids).detach() for ids in dialogues(rank, 4, seed=1000)) / 4
        dist.all_reduce(validation)
        if validation.item() / world < best:
            best = validation.item() / world
            if rank == 0:
                print(f"epoch {epoch}: best validation loss {best:.3f}", flush=True)
                export(model, target)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
