"""Arrival times at the pilot station. Trains per service, then compares predictions of all services."""
import argparse
import os
import random
import time

import torch
import torch.distributed as dist
from torch import nn, optim

torch.backends.cudnn.enabled = False


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=45)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--voyages", type=int, default=60)
    return parser.parse_args()


class Service:
    """Voyages of one liner service; blank sailings are on the schedule but never leave."""

    def __init__(self, name, blanked):
        self.name, self.blanked = name, set(blanked)
        self.rng = random.Random(name)

    def voyage(self):
        time.sleep(0.006)
        x = [self.rng.random() for _ in range(12)]
        return x, sum(x[:4]) * 24

    def batch(self, size):
        rows = [self.voyage() for _ in range(size)]
        return torch.tensor([r[0] for r in rows]).cuda(), torch.tensor([r[1] for r in rows]).cuda().unsqueeze(1)

    def schedule(self, count):
        rows = [self.voyage() for week in range(count) if week not in self.blanked]
        for i in range(0, len(rows), 20):
            part = rows[i : i + 20]
            yield torch.tensor([r[0] for r in part]).cuda(), torch.tensor([r[1] for r in part]).cuda()


SERVICES = [("AE7", ()), ("TP12", ()), ("SAWC", (7, 33, 52))]


@torch.no_grad()
def compare(model, service, voyages):
    model.eval()
    errors = [(model.module(x).squeeze(1) - hours).abs() for x, hours in service.schedule(voyages)]
    model.train()
    mine = torch.cat(errors)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return torch.stack(everyone).cpu()


def main():
    args = arguments()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    service = Service(*SERVICES[dist.get_rank()])
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 1)).cuda(), device_ids=[local]
    )
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for number in range(args.rounds):
        for _ in range(args.steps):
            x, hours = service.batch(8)
            loss = nn.functional.l1_loss(model(x), hours)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
        table = compare(model, service, args.voyages)
        if dist.get_rank() == 0:
            print(f"round {number}: errors of {table.shape[1]} voyages a service", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
