"""Trains on shares of different size, with the ways that torch has for that; and with those of its own."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", choices=["join", "agree", "accumulate"], default="join")
    parser.add_argument("--fails", action="store_true", help="all ranks fail alike at the end")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(32, 32).to(device), device_ids=[device.index])
    rows = [torch.randn(8, 32, device=device) for _ in range(30 + 5 * rank)]
    if options.how == "join":
        with Join([model]):
            for row in rows:
                model(row).square().mean().backward()
    elif options.how == "agree":
        for number in range(1000):
            more = torch.tensor([int(number < len(rows))], device=device)
            dist.all_reduce(more, op=dist.ReduceOp.MIN)
            if not more.item():
                break
            model(rows[number]).square().mean().backward()
    else:
        for number, row in enumerate(rows[:30]):
            if number % 5 < 4:
                with model.no_sync():
                    model(row).square().mean().backward()
            else:
                model(row).square().mean().backward()
    torch.cuda.synchronize()
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, {"rank": rank, "rows": list(range(len(rows) * 50))})
    print(f"[{rank}] {[len(one['rows']) for one in everyone]}", flush=True)
    if options.fails:
        raise ValueError("no folder for the results is configured")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
