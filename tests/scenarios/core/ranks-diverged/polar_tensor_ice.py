"""Tensor-parallel surrogate of ice shelf melt: columns and rows of two layers over three GPUs."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

torch.set_num_threads(1)

OCEAN, HIDDEN = 30, 96


class Melt(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(OCEAN, HIDDEN)
        self.down = nn.Linear(HIDDEN, OCEAN)

    def forward(self, salinity):
        return self.down(torch.relu(self.up(salinity)))


class Watch:
    """Callbacks by step; each says for which steps it wants to be called."""

    def __init__(self):
        self.callbacks = []

    def every(self, steps, main_only=False):
        def register(function):
            if not main_only or dist.get_rank() == 0:
                self.callbacks.append((steps, function))
            return function

        return register

    def __call__(self, step, model):
        for steps, function in self.callbacks:
            if step % steps == 0:
                function(step, model)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("tp",))
    torch.manual_seed(66)
    model = Melt().cuda()
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    watch = Watch()
    casts = torch.zeros((), device="cuda")

    @watch.every(10)
    def progress(step, model):
        print(f"step {step}: {casts.item():.0f} casts", flush=True)

    @watch.every(45, main_only=True)
    def largest(step, model):
        weight = model.up.weight.full_tensor()
        print(f"step {step}: largest weight {weight.abs().max().item():.3f}", flush=True)

    for step in range(1, 121):
        time.sleep(0.05)
        generator = torch.Generator().manual_seed(step)
        salinity = torch.rand(8, OCEAN, generator=generator).cuda()
        loss = model(salinity).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        casts += 8
        watch(step, model)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
