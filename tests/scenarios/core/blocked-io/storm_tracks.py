"""Learns storm tracks; checkpoints are written in the background while training goes on."""

import argparse
import os
import tempfile
import zlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH = 56


class SlowDisk(dcp.FileSystemWriter):
    """A disk that compresses what it gets, for as long as it takes."""

    def __init__(self, path, rounds):
        super().__init__(path)
        self.rounds = rounds

    def write_data(self, plan, planner):
        block = os.urandom(1 << 20)
        for _ in range(self.rounds):
            zlib.compress(block, 9)
        return super().write_data(plan, planner)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mount", type=int, default=-1, help="the rank whose share of the folder does not answer")
    parser.add_argument("--who", choices=["all", "main"], default="all")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--wait", action="store_true", help="write before going on")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
    rank = dist.get_rank()
    folders = [tempfile.mkdtemp(prefix="storms-") if rank == 0 else None]
    dist.broadcast_object_list(folders, src=0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(3))).to(device)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    saved = None
    for step in range(1, 61):
        model(torch.randn(8, WIDTH, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if step % 15 == 0 and (options.who == "all" or rank == 0):
            if saved is not None:
                saved.result()
            folder = os.path.join(folders[0], f"step-{step}")
            os.makedirs(folder, exist_ok=True)
            if rank == options.mount and step == 30:
                os.mkfifo(os.path.join(folder, f"__{rank}_0.distcp"))
            state, writer = {"model": model.state_dict()}, SlowDisk(folder, options.rounds if rank == 0 else 1)
            if options.wait:
                dcp.save(state, storage_writer=writer)
            else:
                saved = dcp.async_save(state, storage_writer=writer)
            print(f"[{rank}] step {step} is being saved", flush=True)
    if saved is not None:
        saved.result()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
