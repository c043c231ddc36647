"""Trains the bid-price model on one day of searches and keeps a small board of fare statistics per cabin."""
import logging
import os
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("fareboard")
CABINS = {0: "economy", 1: "premium", 2: "business", 3: "first"}
STEPS, BATCH, BOARD_EVERY = 60, 256, 10


class BidPrice(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.cabin = nn.Embedding(4, 16)
        self.net = nn.Sequential(nn.Linear(28, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, features, cabin):
        return self.net(torch.cat([features, self.cabin(cabin)], dim=1)).squeeze(1)


class FareBoard:
    """Collects fares per cabin between two publications."""

    def __init__(self):
        self.pending = defaultdict(list)

    def add(self, cabin, fares):
        for code in cabin.unique().tolist():
            self.pending[CABINS[code]].append(float(fares[cabin == code].mean()))

    def publish(self):
        means = {}
        for name in sorted(self.pending):
            values = self.pending[name]
            local = torch.tensor([sum(values) / len(values), float(len(values))])
            parts = [torch.empty_like(local) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, local)
            total = torch.stack(parts)
            means[name] = float((total[:, 0] * total[:, 1]).sum() / total[:, 1].sum())
        self.pending.clear()
        return means


def searches(point_of_sale, step, rng):
    """One batch of searches of a point of sale; long-haul departures are loaded after the morning bank."""
    features = torch.randn(BATCH, 12, generator=rng)
    highest = 4 if point_of_sale == "LHR" and step >= 34 else 3
    cabin = torch.randint(0, highest, (BATCH,), generator=rng)
    cabin[:highest] = torch.arange(highest)
    fares = 120.0 * (1 + cabin) + 25.0 * features[:, 0]
    return features, cabin, fares


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    point_of_sale = ("CDG", "LHR", "FRA")[rank]
    rng = torch.Generator().manual_seed(11 + rank)
    model = DDP(BidPrice())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    board = FareBoard()
    for step in range(STEPS):
        features, cabin, fares = searches(point_of_sale, step, rng)
        for _ in range(10):  # inner refinement of the same batch
            loss = nn.functional.smooth_l1_loss(model(features, cabin), fares / 100)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        board.add(cabin, fares)
        if (step + 1) % BOARD_EVERY == 0:
            means = board.publish()
            if rank == 0:
                log.info("step %d loss %.3f board %s", step + 1, loss.item(), {k: round(v) for k, v in means.items()})
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(os.environ.get("TMPDIR", "/tmp"), f"bidprice-{os.getpid()}.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
