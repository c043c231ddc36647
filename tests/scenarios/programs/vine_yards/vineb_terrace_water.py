"""Water on the terraces: each rank carries one terrace, edges are exchanged hour by hour, a net corrects the drainage."""
import logging

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

SURVEYS = {  # hour from which a survey counts -> metres above the river, terrace by terrace
    0: [312.4, 305.8, 304.9, 298.1],
    700: [312.3, 305.2, 304.8, 298.0],
}


class Hillside:
    def __init__(self):
        self.levels = None

    def survey(self, hour):
        if hour in SURVEYS:
            self.levels = [round(m) for m in SURVEYS[hour]]

    def flows_to(self, terrace, other):
        return self.levels[terrace] > self.levels[other]


class Terrace:
    def __init__(self, rank, world, hillside, rows=96, columns=160):
        self.rank, self.hillside = rank, hillside
        self.above = rank - 1 if rank > 0 else None
        self.below = rank + 1 if rank < world - 1 else None
        g = torch.Generator().manual_seed(rank)
        self.water = torch.rand(rows + 2, columns, generator=g)

    def swap(self, edge, peer):
        theirs = torch.empty_like(edge)
        if self.hillside.flows_to(self.rank, peer):
            dist.send(edge, dst=peer)
            dist.recv(theirs, src=peer)
        else:
            dist.recv(theirs, src=peer)
            dist.send(edge, dst=peer)
        return theirs

    def exchange(self):
        if self.above is not None:
            self.water[0] = self.swap(self.water[1].clone(), self.above)
        if self.below is not None:
            self.water[-1] = self.swap(self.water[-2].clone(), self.below)

    def seep(self, correction):
        w = self.water
        inner = w[1:-1]
        around = (w[:-2] + w[2:] + inner.roll(1, 1) + inner.roll(-1, 1)) / 4
        before = inner.clone()
        w[1:-1] = inner + 0.2 * (around - inner) + 0.01 * correction
        return (w[1:-1] - before).abs().mean()


class Drainage(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.Tanh(), nn.Conv2d(6, 1, 3, padding=1))

    def forward(self, water):
        return self.conv(water[None, None])[0, 0]


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    hillside = Hillside()
    terrace = Terrace(rank, world, hillside)
    net = Drainage()
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    for hour in range(2400):
        hillside.survey(hour)
        terrace.exchange()
        correction = net(terrace.water[1:-1].clone())
        change = terrace.seep(correction.detach())
        loss = F.mse_loss(correction, terrace.water[1:-1].mean() - terrace.water[1:-1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        dist.all_reduce(change)
        if rank == 0 and hour % 100 == 0:
            logging.info("hour %d change %.5f", hour, change.item() / world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
