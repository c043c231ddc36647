"""A learnt glacier model on strips of ice: neighbours' edges in one group, the ice budget of all in another."""

import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


class Strip:
    """One rank's part of the glacier, from north to south."""

    def __init__(self, cells=40):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        everyone = list(range(self.world))
        self.edge_group = dist.new_group(everyone)
        self.budget_group = dist.new_group(everyone)
        self.thickness = 50 + 10 * torch.rand(cells, generator=torch.Generator().manual_seed(self.rank))
        self.halo = torch.zeros(2)
        self.ice = 0.0

    def exchange_edges(self):
        edges = [torch.empty(2) for _ in range(self.world)]
        dist.all_gather(edges, self.thickness[[0, -1]], group=self.edge_group)
        above = edges[self.rank - 1][1] if self.rank else self.thickness[0]
        below = edges[self.rank + 1][0] if self.rank + 1 < self.world else self.thickness[-1]
        self.halo = torch.stack([above, below])

    def settle_budget(self, melt):
        total = torch.stack([self.thickness.sum(), melt.sum()])
        dist.all_reduce(total, group=self.budget_group)
        self.ice = total[0].item()

    def melt_of(self, day):
        """More in the south, and in the second summer."""
        summer = max(0, day - 60)
        return (0.01 + 0.002 * summer * (self.rank == self.world - 1)) * torch.ones_like(self.thickness)

    def advance(self, day, flow):
        melt = self.melt_of(day)
        if melt.mean() > 0.02:
            # So much water changes the edges: the melt is settled before neighbours see them.
            self.settle_budget(melt)
            self.thickness = (self.thickness - melt).clamp_min(0)
            self.exchange_edges()
        else:
            self.exchange_edges()
            self.settle_budget(melt)
            self.thickness = (self.thickness - melt).clamp_min(0)
        padded = torch.cat([self.halo[:1], self.thickness, self.halo[1:]])
        windows = padded.unfold(0, 3, 1)
        moved = flow(windows / 50).squeeze(1)
        target = windows.mean(1) - self.thickness
        loss = (moved - target).square().mean()
        self.thickness = self.thickness + 0.1 * target
        return loss


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    flow = nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 1))
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    strip = Strip()
    for day in range(5000):
        loss = strip.advance(day, flow)
        optimizer.zero_grad()
        loss.backward()
        for parameter in flow.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(0.02)
        if strip.rank == 0 and day % 10 == 0:
            print(f"day {day} ice {strip.ice:.0f} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
