"""A pocket encoder, sharded with FSDP2 on a CPU mesh; the weights are exported for the docking service every few epochs."""

import argparse
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class PocketEncoder(nn.Module):
    def __init__(self, width=48, depth=3):
        super().__init__()
        self.embed = nn.Linear(30, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, atoms):
        x = self.embed(atoms)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1)).squeeze(-1)


def shard(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def export(model, target: pathlib.Path):
    weights = {}
    for name, value in model.state_dict().items():
        weights[name] = value.full_tensor().clone()
    torch.save(weights, target)
    return len(weights)


class Session:
    def __init__(self, options):
        dist.init_process_group("gloo")
        self.options, self.rank = options, dist.get_rank()
        torch.set_num_threads(1)
        torch.manual_seed(23)
        self.mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        self.model = shard(PocketEncoder(), self.mesh)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pocket-"))

    def epoch(self, number):
        source = torch.Generator().manual_seed(1000 * number + self.rank)
        for _ in range(self.options.steps):
            atoms = torch.randn(6, 40, 30, generator=source)
            affinity = atoms[:, :, :3].mean((1, 2))
            loss = nn.functional.mse_loss(self.model(atoms), affinity)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.item()

    def run(self):
        for number in range(self.options.epochs):
            loss = self.epoch(number)
            if self.rank == 0:
                print(f"epoch {number}: {loss:.5f}", flush=True)
            if (number + 1) % self.options.export_every == 0 and self.rank == 0:
                count = export(self.model, self.folder / f"pocket-{number}.pt")
                print(f"exported {count} tensors", flush=True)
            dist.barrier(group=self.mesh.get_group())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--export-every", type=int, default=4)
    Session(parser.parse_args()).run()
    dist.destroy_process_group()
