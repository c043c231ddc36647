"""Trains a dam inflow model and writes the state in turns, to go easy on the shared disk."""
import argparse
import os
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class TurnwiseWriter:
    """One process after the other writes its part, in blocks and at a limited rate."""

    def __init__(self, folder, rate, block=65536):
        self.folder, self.rate, self.block = folder, rate, block
        os.makedirs(folder, exist_ok=True)

    def write(self, name, data):
        path = os.path.join(self.folder, name)
        began, done = time.monotonic(), 0
        with open(path, "wb") as stream:
            for start in range(0, len(data), self.block):
                stream.write(data[start:start + self.block])
                stream.flush()
                os.fsync(stream.fileno())
                done = min(start + self.block, len(data))
                ahead = done / self.rate - (time.monotonic() - began)
                if ahead > 0:
                    time.sleep(ahead)
        return done

    def save(self, ensemble):
        rank, world = dist.get_rank(), dist.get_world_size()
        for turn in range(world):
            if turn == rank:
                data = ensemble.numpy().tobytes()
                size = self.write(f"part-{rank}.bin", data)
                print(f"part {rank}: {size / 1e6:.1f} MB", flush=True)
            dist.barrier()


def train(model, optimizer, steps, gen):
    for _ in range(steps):
        inflow = torch.rand(128, 20, generator=gen)
        loss = (model(inflow).squeeze(1) - inflow.mean(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--members", type=int, default=2400000)
    parser.add_argument("--rate", type=float, default=1.6e6, help="bytes per second")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rank = dist.get_rank()
    gen = torch.Generator().manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(20, 200), nn.ReLU(), nn.Linear(200, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    folder = tempfile.mkdtemp(prefix=f"inflow-{rank}-")
    writer = TurnwiseWriter(folder, options.rate)
    print(f"rank {rank}: {train(model, optimizer, 100, gen):.5f}", flush=True)
    ensemble = torch.randn(options.members * (2 if rank == 0 else 1), generator=gen)
    writer.save(ensemble)
    print(f"rank {rank}: {train(model, optimizer, 80, gen):.5f}", flush=True)
    dist.barrier()
    shutil.rmtree(folder, ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
