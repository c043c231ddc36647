"""Milling yield model, sharded with FSDP2; weights go to the mill's controller every now and then."""
import argparse
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Passage(nn.Module):
    """One passage through the rollers."""

    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


class YieldModel(nn.Module):
    def __init__(self, dim=24, passages=3):
        super().__init__()
        self.passages = nn.ModuleList(Passage(dim) for _ in range(passages))
        self.out = nn.Linear(dim, 3)  # flour, semolina, bran

    def forward(self, x):
        for passage in self.passages:
            x = passage(x)
        return self.out(x)


def build(mesh, lr):
    torch.manual_seed(17)
    model = YieldModel()
    for passage in model.passages:
        fully_shard(passage, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.Adam(model.parameters(), lr=lr)


def grain_batches(rank, steps):
    gen = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        time.sleep(0.03)
        x = torch.randn(16, 24, generator=gen)  # hardness, moisture, gap, speed ...
        yield x, x[:, :3] * 0.5 + x[:, 3:6] * 0.2


def send_to_controller(model, folder, step):
    if dist.get_rank() == 0:
        weights = {}
        for name, value in model.state_dict().items():
            weights[name] = value.full_tensor()
        torch.save(weights, folder / f"mill-{step:05d}.pt")
        print(f"mill-{step:05d}.pt written", flush=True)
    dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--export-every", type=int, default=60)
    parser.add_argument("--lr", type=float, default=1e-3)
    opts = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mill-"))
    model, optimizer = build(init_device_mesh("cpu", (dist.get_world_size(),)), opts.lr)
    for step, (x, y) in enumerate(grain_batches(rank, opts.steps), 1):
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % opts.export_every == 0:
            send_to_controller(model, folder, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
