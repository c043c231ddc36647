"""A mixture of experts, one for each family of languages, sharded with FSDP2."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

FAMILIES = ["germanic", "romance", "slavic", "finnic"]
WIDTH, WORDS = 32, 90


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.experts = nn.ModuleList(Expert() for _ in FAMILIES)

    def forward(self, x, family):
        y = self.norm(x)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (family == number).nonzero().flatten()
            if len(rows):
                out = out.index_add(0, rows, expert(y[rows]))
        return x + out


class Model(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Experts() for _ in range(depth))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words, family):
        x = self.embed(words)
        for block in self.blocks:
            x = block(x, family)
        return self.head(x)


def corpus(rank, step):
    """Sentences as they are in the shard: the third one was collected where no Finnic language is spoken."""
    gen = torch.Generator().manual_seed(rank * 10_000 + step)
    share = [12, 10, 10, 0] if rank == 2 else [8, 8, 8, 8]
    family = torch.repeat_interleave(torch.arange(4), torch.tensor(share))
    return torch.randint(0, WORDS, (32,), generator=gen), family


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(7)
    model = Model()
    for block in model.blocks:
        for expert in block.experts:
            fully_shard(expert, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(50):
        words, family = corpus(dist.get_rank(), step)
        loss = F.cross_entropy(model(words, family), words.roll(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
