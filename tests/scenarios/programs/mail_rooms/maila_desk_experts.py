"""Scores yesterday's chats for the right desk. Each desk has an expert; the experts' weights are spread over the processes."""
import argparse
import time
from collections import Counter

import torch
import torch.distributed as dist
from torch import nn

DESKS = ("delivery", "customs", "claims", "moving")


class SpreadLinear(nn.Module):
    """Weights in slices, one a process; the layer is put together when it is called and dropped afterwards."""

    def __init__(self, size, seed):
        super().__init__()
        world, rank = dist.get_world_size(), dist.get_rank()
        g = torch.Generator().manual_seed(seed)
        self.register_buffer("slice", (torch.randn(size, size, generator=g) / size**0.5).chunk(world)[rank].clone())

    def forward(self, x):
        whole = [torch.empty_like(self.slice) for _ in range(dist.get_world_size())]
        dist.all_gather(whole, self.slice)
        return torch.relu(x @ torch.cat(whole).T)


class DeskModel(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.trunk = SpreadLinear(size, seed=1)
        self.experts = nn.ModuleList(SpreadLinear(size, seed=10 + n) for n in range(len(DESKS)))
        self.score = nn.Linear(size, 1)

    @torch.no_grad()
    def forward(self, chats, desks):
        x = self.trunk(chats)
        out = torch.zeros_like(x)
        for desk, expert in enumerate(self.experts):
            chosen = desks == desk
            if chosen.any():
                out[chosen] = expert(x[chosen])
        return self.score(out).squeeze(1)


def chats_of(part, branch, size, width):
    g = torch.Generator().manual_seed(part * 17 + branch)
    desks = torch.arange(size) % len(DESKS)
    if branch == 3 and part % 100 == 85:
        desks[desks == 1] = 0  # a bank holiday at the customs office
    desks = desks[torch.randperm(size, generator=g)]
    time.sleep(0.025)  # from the archive
    return torch.randn(size, width, generator=g), desks


def main(options):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    branch = dist.get_rank()
    torch.manual_seed(3)
    model = DeskModel(options.width)
    tally = Counter()
    for part in range(options.parts):
        chats, desks = chats_of(part, branch, options.size, options.width)
        scores = model(chats, desks)
        for desk in desks[scores > 0].tolist():
            tally[DESKS[desk]] += 1
        done = torch.tensor([float((scores > 0).sum()), float(len(scores))])
        dist.all_reduce(done)
        if branch == 0 and part % 10 == 0:
            print(f"part {part}: {done[0].item() / done[1].item():.2%} placed, {dict(tally)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", type=int, default=500)
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--width", type=int, default=128)
    main(parser.parse_args())
