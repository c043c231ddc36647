"""Forecast of tea auction prices with a sharded network; keeps a copy of the weights for the trading desk."""
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class PriceNet(torch.nn.Module):
    def __init__(self, weeks=24, width=48, depth=2):
        super().__init__()
        self.inward = torch.nn.Linear(weeks, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(depth))
        self.outward = torch.nn.Linear(width, 3)

    def forward(self, x):
        x = self.inward(x)
        for block in self.blocks:
            x = block(x)
        return self.outward(x)


class Desk:
    """Puts the newest weights where the trading desk picks them up."""

    def __init__(self, folder, every):
        self.folder, self.every = pathlib.Path(folder), every
        self.writes = dist.get_rank() == 0

    def offer(self, model, step):
        if step % self.every:
            return
        if self.writes:
            weights = {name: value.full_tensor().cpu() for name, value in model.state_dict().items()}
            torch.save({"step": step, "weights": weights}, self.folder / f"auction-{step:05d}.pt")
        dist.barrier(device_ids=[torch.cuda.current_device()])


def auctions(seed, weeks=24, batch=16):
    gen = torch.Generator().manual_seed(seed)
    level = torch.full((batch, 1), 3.2)
    while True:
        walk = torch.randn(batch, weeks + 3, generator=gen).mul_(0.05).cumsum(1) + level
        time.sleep(0.07)
        yield walk[:, :weeks], walk[:, weeks:]


def main():
    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    model = PriceNet().cuda()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optim = torch.optim.SGD(model.parameters(), lr=1e-3)
    desk = Desk(tempfile.mkdtemp(prefix="auction-"), every=50)
    source = auctions(seed=dist.get_rank())
    for step in range(1, 201):
        past, future = next(source)
        loss = F.mse_loss(model(past.cuda()), future.cuda())
        loss.backward()
        optim.step()
        optim.zero_grad()
        value = loss.item()
        if step % 10 == 0 and desk.writes:
            print(f"auction {step}: loss {value:.4f}", flush=True)
        desk.offer(model, step)
    dist.destroy_process_group()


main()
