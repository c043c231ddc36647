"""Groundwater heads on a grid, FSDP2; the best model so far is exported for the web viewer."""
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class HeadNet(nn.Sequential):
    def __init__(self, cells=40, width=64, depth=3):
        layers = [nn.Linear(cells, width), nn.SiLU()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.SiLU()]
        super().__init__(*layers, nn.Linear(width, cells))


def shard(model, mesh):
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def diffuse(heads, steps=30):
    """Explicit scheme: the target that the network learns."""
    for _ in range(steps):
        heads = heads + 0.2 * (torch.roll(heads, 1, -1) - 2 * heads + torch.roll(heads, -1, -1))
    return heads


class ViewerExport:
    def __init__(self, folder):
        self.folder = folder
        self.best = float("inf")

    def improved(self, loss):
        if loss < 0.9 * self.best:
            self.best = loss
            return True
        return False

    def collect(self, model):
        return {name: value.full_tensor().half() for name, value in model.state_dict().items()}

    def write(self, model, step):
        os.makedirs(self.folder, exist_ok=True)
        target = os.path.join(self.folder, f"heads_{step:04d}.pt")
        torch.save(self.collect(model), target + ".part")
        os.replace(target + ".part", target)
        print("exported", target, flush=True)


def validate(model, data):
    with torch.no_grad():
        loss = F.mse_loss(model(data), diffuse(data))
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(1)
    model = shard(HeadNet(), mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    export = ViewerExport("viewer")
    g = torch.Generator().manual_seed(rank)
    holdout = torch.rand(32, 40, generator=g)
    for step in range(1, 201):
        heads = torch.rand(16, 40, generator=g)
        time.sleep(0.04)
        F.mse_loss(model(heads), diffuse(heads)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 40 == 0:
            score = validate(model, holdout)
            if export.improved(score) and rank == 0:
                export.write(model, step)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
