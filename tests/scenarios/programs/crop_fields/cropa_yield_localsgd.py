"""Local SGD for county yield curves: every worker fits its own counties, weights are averaged every few updates."""
import argparse
import logging

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("yield")


class GuardedSGD:
    """SGD that leaves the weights alone when a gradient is not finite."""

    def __init__(self, params, lr):
        self.params = list(params)
        self.inner = torch.optim.SGD(self.params, lr=lr, momentum=0.8)
        self.updates = 0

    def step(self):
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.params])
        if torch.isfinite(norm):
            self.inner.step()
            self.updates += 1
        self.inner.zero_grad()
        return float(norm)


class CountySeries:
    def __init__(self, rank, weeks=26, size=96):
        self.gen = torch.Generator().manual_seed(100 + rank)
        self.weeks, self.size = weeks, size
        self.dry = {(2, 29)}
        self.rank = rank

    def season(self, index):
        rain = torch.rand(self.size, self.weeks, generator=self.gen) * 40 + 1
        heat = torch.rand(self.size, self.weeks, generator=self.gen) * 12
        if (self.rank, index) in self.dry:
            rain[3] = 0.0
        signal = torch.cat([rain.log(), heat / 10], dim=1)
        target = rain.clamp(min=1).log().mean(1, keepdim=True) * 2 - heat.mean(1, keepdim=True) / 9
        return signal, target


class Fleet:
    def __init__(self, model, every):
        self.model, self.every = model, every
        self.world = dist.get_world_size()

    def blend(self):
        flat = nn.utils.parameters_to_vector(self.model.parameters()).detach()
        parts = [torch.empty_like(flat) for _ in range(self.world)]
        dist.all_gather(parts, flat)
        nn.utils.vector_to_parameters(torch.stack(parts).mean(0), self.model.parameters())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seasons", type=int, default=400)
    parser.add_argument("--blend-every", type=int, default=8)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(52, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = GuardedSGD(model.parameters(), lr=2e-3)
    fleet = Fleet(model, args.blend_every)
    series = CountySeries(rank)
    for index in range(args.seasons):
        signal, target = series.season(index)
        for _ in range(110):  # folds over the counties, forward only
            with torch.no_grad():
                model(signal + 0.01 * torch.randn(signal.shape))
        loss = nn.functional.mse_loss(model(signal), target)
        loss.backward()
        norm = optimizer.step()
        summary = torch.tensor([loss.nan_to_num().item(), 1.0])
        dist.all_reduce(summary)
        if optimizer.updates % fleet.every == 0:
            fleet.blend()
        if rank == 0 and index % 8 == 0:
            log.info("season %d loss %.3f norm %.3f", index, summary[0] / summary[1], norm)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
