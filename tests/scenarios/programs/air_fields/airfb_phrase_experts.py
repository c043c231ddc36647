"""Read-back checker for ATC phraseology: shared trunk, experts per phrase family with their weights spread over the ranks."""
import argparse
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

FAMILIES = ("clearance", "weather", "urgency")


class SpreadLinear(nn.Module):
    """A linear layer of which each rank keeps some rows; the whole is put together for each use."""

    def __init__(self, width: int, rank: int, world: int):
        super().__init__()
        self.rank, self.rows = rank, width // world
        whole = torch.empty(width, width)
        nn.init.orthogonal_(whole)
        self.shard = nn.Parameter(whole[rank * self.rows : (rank + 1) * self.rows].clone())
        self.whole = None

    def forward(self, x):
        parts = [torch.empty_like(self.shard) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, self.shard.detach())
        self.whole = torch.cat(parts).requires_grad_()
        return F.linear(x, self.whole)

    def collect_grad(self):
        if self.whole is None:
            return
        dist.all_reduce(self.whole.grad)
        self.shard.grad = self.whole.grad[self.rank * self.rows : (self.rank + 1) * self.rows] / dist.get_world_size()
        self.whole = None


class ReadBack(nn.Module):
    def __init__(self, rank, world, width=96):
        super().__init__()
        self.words = nn.EmbeddingBag(500, width)
        self.experts = nn.ModuleDict({f: SpreadLinear(width, rank, world) for f in FAMILIES})
        self.judge = nn.Linear(width, 2)

    def forward(self, words, family):
        h = torch.tanh(self.words(words))
        out = h.clone()
        for number, name in enumerate(FAMILIES):
            rows = (family == number).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, torch.relu(self.experts[name](h[rows])))
        return self.judge(out)


def shift_of(rank, step, size=48):
    """Exchanges of one frequency. Clearance delivery stops to hear distress calls after the frequency change."""
    g = torch.Generator().manual_seed(rank * 10007 + step)
    words = torch.randint(0, 500, (size, 24), generator=g)
    share = torch.tensor([0.6, 0.3, 0.1])
    if rank == 0 and step >= 70:
        share = torch.tensor([0.8, 0.2, 0.0])
    family = torch.multinomial(share, size, replacement=True, generator=g)
    family[0], family[1] = 0, 1
    if share[2] > 0:
        family[2] = 2
    time.sleep(0.03)  # recorder's polling interval
    return words, family, (words[:, 0] > words[:, 1]).long()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    steps = parser.parse_args().steps
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(13)
    model = ReadBack(rank, world)
    shared = [p for n, p in model.named_parameters() if "shard" not in n]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        words, family, right = shift_of(rank, step)
        loss = F.cross_entropy(model(words, family), right)
        optimizer.zero_grad()
        loss.backward()
        for p in shared:
            dist.all_reduce(p.grad)
            p.grad /= world
        for expert in model.experts.values():
            expert.collect_grad()
        optimizer.step()
        if rank == 0 and step % 15 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
