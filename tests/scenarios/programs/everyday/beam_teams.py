"""Particle tracks on four processes; the last one is kept free for validation."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel


class Tracks(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            angle = torch.rand(1) * 6.28
            radius = torch.arange(1, 9) / 8
            yield torch.cat([radius * angle.cos(), radius * angle.sin()]), angle


def make_model():
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))


def trainer(mesh):
    model = DistributedDataParallel(make_model(), process_group=mesh.get_group("train"))
    optimizer = torch.optim.Adam(model.parameters())
    loader = torch.utils.data.DataLoader(Tracks(), batch_size=8)
    for _, (hits, angle) in zip(range(60), loader, strict=False):
        loss = (model(hits) - angle).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.module


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank < world - 1:
        mesh = init_device_mesh("cpu", (world - 1,), mesh_dim_names=("train",))
        model = trainer(mesh)
    else:
        model = make_model()
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    if rank == world - 1:
        hits, angle = next(iter(torch.utils.data.DataLoader(Tracks(), batch_size=256)))
        with torch.no_grad():
            print(f"validation: {(model(hits) - angle).abs().mean():.3f}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
