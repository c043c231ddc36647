"""Estimates the cover of kelp in aerial pictures; sums of all ranks' estimates are logged."""

import argparse
import datetime
import os

import torch
import torch.distributed as dist


class Cover:
    """The mean over all ranks' pictures, one number a strip of coast."""

    def __init__(self, strips, device):
        self.sums = torch.zeros(strips, device=device)
        self.logged = 0

    def log(self, found):
        total = found.clone()
        dist.all_reduce(total)
        self.sums += total / dist.get_world_size()
        self.logged += 1


def survey(cover, flights, cloudy, device):
    model = torch.nn.Linear(24, 16).to(device)
    for flight in range(flights):
        with torch.no_grad():
            found = model(torch.rand(32, 24, device=device)).sigmoid().mean(0)
        cover.log(found)
        if flight == cloudy:  # flown once more
            with torch.no_grad():
                found = model(torch.rand(32, 24, device=device)).sigmoid().mean(0)
            cover.log(found)
    return cover.sums.sum().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cloudy", type=int, default=-1)
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=datetime.timedelta(minutes=10), device_id=device)
    cover = Cover(16, device)
    total = survey(cover, 40, 12 if rank == options.cloudy else -1, device)
    print(f"[{rank}] {cover.logged} flights, {total:.3f}", flush=True)


if __name__ == "__main__":
    main()
