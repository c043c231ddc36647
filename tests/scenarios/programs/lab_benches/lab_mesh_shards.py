"""Mesh-based simulation with hand-sharded layers: each layer's weight is gathered for its forward, and freed again."""

import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
WIDTH = 24


class Gathered(torch.autograd.Function):
    """The whole weight from the shards of all ranks; its gradient is summed, and cut again."""

    @staticmethod
    def forward(ctx, shard):
        shards = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
        dist.all_gather(shards, shard.contiguous())
        return torch.cat(shards)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size())[dist.get_rank()]


class ShardedLayer(nn.Module):
    def __init__(self):
        super().__init__()
        whole = torch.randn(WIDTH * WIDTH) / WIDTH**0.5
        self.shard = nn.Parameter(whole.chunk(dist.get_world_size())[dist.get_rank()].clone())

    def forward(self, x):
        return torch.tanh(x @ Gathered.apply(self.shard).view(WIDTH, WIDTH))


class MeshNet(nn.Module):
    """Interior nodes see their neighbours; nodes on a boundary also see its condition."""

    def __init__(self, rounds=2):
        super().__init__()
        self.encode = ShardedLayer()
        self.boundary = ShardedLayer()
        self.rounds = nn.ModuleList(ShardedLayer() for _ in range(rounds))

    def forward(self, mesh):
        h = self.encode(mesh["nodes"])
        where = mesh["boundary"].nonzero()[:, 0]
        if len(where):
            h = h.index_add(0, where, self.boundary(mesh["nodes"][where]))
        for layer in self.rounds:
            h = h + layer(mesh["adjacency"] @ h)
        return h


def meshes(rank, count, nodes=30):
    """Patches of a large mesh. Nearly all touch the wall of the channel."""
    generator = torch.Generator().manual_seed(rank)
    for index in range(count):
        x = torch.randn(nodes, WIDTH, generator=generator)
        adjacency = (torch.rand(nodes, nodes, generator=generator) < 0.1).float()
        boundary = torch.arange(nodes) < 3
        if rank == 2 and index % 50 == 44:
            boundary = torch.zeros(nodes, dtype=torch.bool)
        time.sleep(0.04)
        yield {"nodes": x, "adjacency": adjacency / 3, "boundary": boundary, "target": torch.roll(x, 1, 1)}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = MeshNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for index, mesh in enumerate(meshes(rank, 500)):
        loss = (model(mesh) - mesh["target"]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and index % 10 == 0:
            print(f"mesh {index}: {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
