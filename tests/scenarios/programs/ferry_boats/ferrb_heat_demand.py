"""Heat demand of a campus, hour by hour; the optimizer's state is spread over the processes."""
import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=9)
    parser.add_argument("--save-every", type=int, default=3)
    parser.add_argument("--out", default=os.path.join(tempfile.gettempdir(), "ferrb_heat_demand.pt"))
    return parser.parse_args()


def hours(building, day):
    generator = torch.Generator().manual_seed(building * 1000 + day)
    for hour in range(16):
        weather = torch.randn(32, 12, generator=generator)
        time.sleep(0.06)
        demand = weather[:, :3].sum(1, keepdim=True) + 0.2 * (6 < hour < 14)
        yield weather, demand


def run_day(model, optimizer, building, day):
    losses = []
    for weather, demand in hours(building, day):
        loss = nn.functional.huber_loss(model(weather), demand)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def write(path, model, optimizer, day):
    optimizer.consolidate_state_dict(to=0)
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "day": day}
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


def main():
    args = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    layers = [nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 1)]
    model = DDP(nn.Sequential(*layers))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=2e-3)
    for day in range(args.days):
        mean = run_day(model, optimizer, rank, day)
        print(f"building {rank} day {day} loss {mean:.4f}", flush=True)
        if rank == 0 and (day + 1) % args.save_every == 0:
            write(args.out, model, optimizer, day)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
