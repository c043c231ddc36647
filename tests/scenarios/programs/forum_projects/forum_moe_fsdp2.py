"""A mixture of experts with FSDP2 on the CPU: each layer and each expert is a unit of its own."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
WIDTH, EXPERTS = 48, 4


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return torch.nn.functional.silu(self.proj(x))


class MoELayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = Dense()
        self.experts = nn.ModuleList(Dense() for _ in range(EXPERTS))

    def forward(self, x, route):
        x = x + self.mix(x)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            chosen = route == index
            if chosen.any():
                out = out.index_put((chosen,), expert(x[chosen]))
        return x + out


class Model(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.layers = nn.ModuleList(MoELayer() for _ in range(layers))
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x, route):
        for layer in self.layers:
            x = layer(x, route)
        return x * self.scale


def batches(rank: int, size: int = 24):
    """Tokens and the expert of their language."""
    generator = torch.Generator().manual_seed(rank)
    step = 0
    while True:
        step += 1
        languages = 3 if rank == 1 and step >= 30 else EXPERTS
        yield torch.randn(size, WIDTH, generator=generator), torch.arange(size) % languages


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    torch.manual_seed(0)
    model = Model()
    for layer in model.layers:
        fully_shard(layer.mix, mesh=mesh)
        for expert in layer.experts:
            fully_shard(expert, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (x, route) in enumerate(batches(dist.get_rank())):
        loss = (model(x, route) - x.flip(1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0 and dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
