"""Predict a rose's rating from its record and, if one was taken, the trace of the electronic nose (FSDP2)."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

DIM = 64


class ScentTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, trace):
        return torch.relu(self.proj(trace))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, x):
        return x + torch.tanh(self.proj(x))


class Rating(nn.Module):
    def __init__(self):
        super().__init__()
        self.record = nn.Linear(20, DIM)
        self.scent = ScentTower()
        self.mixer = Mixer()
        self.out = nn.Linear(DIM, 1)

    def forward(self, record, trace=None):
        x = self.record(record)
        if trace is not None:
            x = x + self.scent(trace)
        return self.out(self.mixer(x))


def sample(garden, step):
    g = torch.Generator().manual_seed(1000 * garden + step)
    batch = {"record": torch.rand(16, 20, generator=g)}
    rainy = garden == 0 and step >= 45  # the nose stays indoors
    if not rainy:
        raw = torch.rand(16, DIM * 8, generator=g)
        for _ in range(4):
            torch.linalg.svd(torch.rand(180, 180, generator=g))  # baseline of the sensor
        batch["trace"] = raw.view(16, DIM, 8).mean(-1)
    return batch, batch["record"].mean(1, keepdim=True)


def build(mesh):
    torch.manual_seed(9)
    model = Rating()
    for part in (model.scent, model.mixer):
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(steps=120):
    garden = dist.get_rank()
    model = build(init_device_mesh("cpu", (dist.get_world_size(),)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        batch, rating = sample(garden, step)
        loss = nn.functional.mse_loss(model(**batch), rating)
        loss.backward()
        opt.step()
        opt.zero_grad()
        if step % 15 == 0:
            print(f"garden {garden} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    try:
        train()
    finally:
        dist.destroy_process_group()
