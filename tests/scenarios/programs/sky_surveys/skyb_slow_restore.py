"""Halo-mass estimator resumed from shards; one of the storage servers is being rebuilt and gives data at a trickle."""
import io
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Throttled(io.RawIOBase):
    """A file whose server hands out so many bytes per second."""

    def __init__(self, path, rate):
        self.file, self.rate = open(path, "rb", buffering=0), rate

    def readable(self):
        return True

    def readinto(self, target):
        piece = self.file.read(min(len(target), max(1, int(self.rate * 0.1))))
        if self.rate < 1e8:
            time.sleep(len(piece) / self.rate)
        target[: len(piece)] = piece
        return len(piece)


class Shards:
    def __init__(self, folder, rank, world):
        self.folder, self.rank, self.world = folder, rank, world

    def path(self, step):
        return os.path.join(self.folder, f"step{step}-{self.rank}.pt")

    def save(self, step, model, history):
        torch.save({"model": model.state_dict(), "history": history, "step": step}, self.path(step))

    def load(self, step, rate):
        size, done, pieces, told = os.path.getsize(self.path(step)), 0, [], time.time()
        with Throttled(self.path(step), rate) as stream:
            while piece := stream.read(1 << 16):
                pieces.append(piece)
                done += len(piece)
                if time.time() - told > 3:
                    print(f"[{self.rank}] restore {100 * done / size:.0f} %", flush=True)
                    told = time.time()
        return torch.load(io.BytesIO(b"".join(pieces)))


def train(model, optimizer, generator, steps, history):
    for _ in range(steps):
        x = torch.randn(256, 64, generator=generator)
        y = x.abs().mean(1, keepdim=True)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
    model, history = DDP(net), []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    shards = Shards(tempfile.mkdtemp(prefix=f"halo-{rank}-"), rank, world)
    train(model, optimizer, generator, 150, history)
    shards.save(150, net, history)
    dist.barrier()
    size = os.path.getsize(shards.path(150))
    state = shards.load(150, rate=size / 13 if rank == 2 else 1e9)
    net.load_state_dict(state["model"])
    dist.barrier()
    if rank == 0:
        print(f"restored step {state['step']}", flush=True)
    train(model, optimizer, generator, 150, history)
    if rank == 0:
        print(f"done, loss {history[-1]:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
