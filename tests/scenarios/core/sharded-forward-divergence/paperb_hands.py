"""One expert for each chancery hand; their weights are spread over the processes."""
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

HANDS = ("kurrent", "kanzlei", "bastarda")
WIDTH, LETTERS = 36, 27


class Register:
    """The register's pages: a page has six lines; its tables of contents are in the clerks' two hands."""

    def __init__(self, contents_every=76):
        self.contents_every = contents_every

    def hands(self, page):
        known = HANDS[:2] if page and page % self.contents_every == 0 else HANDS
        return [known[(page + line) % len(known)] for line in range(6)]

    def lines(self, page):
        generator = torch.Generator().manual_seed(page)
        return torch.randn(6, WIDTH, generator=generator), torch.randn(6, LETTERS, generator=generator)


class HandExpert(nn.Module):
    def __init__(self):
        super().__init__()
        self.stroke = nn.Linear(WIDTH, 90)
        self.letter = nn.Linear(90, WIDTH)

    def forward(self, x):
        return self.letter(torch.relu(self.stroke(x)))


class Palaeographer(nn.Module):
    def __init__(self):
        super().__init__()
        self.paper = nn.Linear(WIDTH, WIDTH)
        self.experts = nn.ModuleDict({hand: HandExpert() for hand in HANDS})
        self.alphabet = nn.Linear(WIDTH, LETTERS)

    def forward(self, x, hands):
        x = self.paper(x)
        read = x
        for hand, expert in self.experts.items():
            share = torch.tensor([[float(h == hand)] for h in hands])
            if share.any():
                read = read + expert(x) * share.to(x.device)
        return self.alphabet(read)


def spread(model, mesh):
    for expert in model.experts.values():
        fully_shard(expert, mesh=mesh)
    fully_shard(model.alphabet, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = spread(Palaeographer().cuda(), init_device_mesh("cuda", (world,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    register = Register()
    for turn in range(80):
        page = turn * world + rank
        lines, letters = register.lines(page)
        time.sleep(0.1)
        loss = (model(lines.cuda(), register.hands(page)) - letters.cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        if turn % 8 == 0:
            print(f"[{rank}] page {page}: {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
