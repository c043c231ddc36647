"""Fits spectra. After a batch that no rank can read, communicators are aborted and made anew, and training goes on."""

import argparse
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

CHANNELS = 256


class UnreadableBatch(RuntimeError):
    pass


def read_batch(step, device, broken):
    if broken:
        raise UnreadableBatch(f"batch {step}: checksum does not match")
    return torch.randn(CHANNELS, device=device)


def begin(life, device):
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timedelta(minutes=30)
    )
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl", store=dist.PrefixStore(f"life-{life}", store), rank=rank, world_size=size)
    dist.all_reduce(torch.zeros(1, device=device))


def abort():
    dist.distributed_c10d._abort_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--broken", type=int, default=40, help="the batch that cannot be read")
    parser.add_argument("--only", type=int, help="the one rank that cannot read it")
    parser.add_argument("--reload", type=float, default=0.0, help="seconds to load the last state")
    options = parser.parse_args()
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    life, step = 0, 0
    begin(life, device)
    fitted = torch.zeros(CHANNELS, device=device)
    while step < 80:
        try:
            broken = life == 0 and step == options.broken and options.only in (None, rank)
            batch = read_batch(step, device, broken)
            dist.all_reduce(batch)
            fitted += batch / dist.get_world_size()
            torch.cuda.synchronize()
        except UnreadableBatch as error:
            print(f"[rank {rank}] {error}; starting again", flush=True)
            abort()
            life += 1
            if rank == 0:
                time.sleep(options.reload)
            begin(life, device)
        step += 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
