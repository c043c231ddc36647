"""Finds lesions on the practice's X-rays; after each round the findings of all stations are scored together."""
import argparse
import time

import torch
import torch.distributed as dist
import torch.nn as nn


class Confusion:
    """Counts per station, merged over the stations when asked for a score."""

    def __init__(self, threshold=0.5):
        self.threshold = threshold
        self.reset()

    def reset(self):
        self.hits = self.misses = self.alarms = 0
        self.scores, self.truths = [], []

    def update(self, probability, truth):
        keep = truth.sum(1) > 0
        if not keep.any():
            return
        probability, truth = probability[keep], truth[keep]
        found = probability > self.threshold
        self.hits += int((found & (truth > 0)).sum())
        self.misses += int((~found & (truth > 0)).sum())
        self.alarms += int((found & (truth == 0)).sum())
        self.scores.append(probability.flatten())
        self.truths.append(truth.flatten())

    def compute(self):
        rows = [None] * dist.get_world_size()
        dist.all_gather_object(rows, (self.hits, self.misses, self.alarms))
        hits, misses, alarms = (sum(column) for column in zip(*rows))
        return {"recall": hits / max(1, hits + misses), "precision": hits / max(1, hits + alarms)}


class Station:
    def __init__(self, args):
        self.rank, self.args = dist.get_rank(), args
        self.net = nn.Sequential(nn.Conv2d(1, 6, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(96, 5))
        for p in self.net.parameters():
            dist.broadcast(p.data, 0)
        self.ddp = nn.parallel.DistributedDataParallel(self.net)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.02)
        self.rng = torch.Generator().manual_seed(40 + self.rank)
        self.metric = Confusion()

    def images(self, season):
        """Most films show nothing: the share with a finding depends on the station's patients."""
        share = [0.4, 0.5, 0.3, 0.45][self.rank]
        if season >= 3 and self.rank == 2:
            share = 0.0  # reptiles and amphibians, in hibernation
        time.sleep(0.04)
        x = torch.randn(8, 1, 40, 40, generator=self.rng)
        ill = torch.rand(8, 1, generator=self.rng) < share
        return x, (torch.rand(8, 5, generator=self.rng) < 0.6).float() * ill

    def fit(self, season):
        self.ddp.train()
        for _ in range(self.args.steps):
            x, y = self.images(season)
            loss = nn.functional.binary_cross_entropy_with_logits(self.ddp(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def score(self, season):
        self.metric.reset()
        for _ in range(4):
            x, y = self.images(season)
            self.metric.update(torch.sigmoid(self.net(x)), y)
        report = {"films": 4 * 8}
        if len(self.metric.truths) > 0:
            report.update(self.metric.compute())
        return report


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--seasons", type=int, default=8)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    station = Station(args)
    for season in range(args.seasons):
        loss = station.fit(season)
        report = station.score(season)
        if station.rank == 0:
            print(f"season {season}: loss {loss:.3f} {report}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
