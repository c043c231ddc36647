"""Nowcasting with FSDP2: station series always, radar mosaics where there are any."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH = 32


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.inner(x))


class Nowcaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, WIDTH)
        self.radar = Tower()
        self.decoder = Tower()
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, series, mosaic=None):
        hidden = self.embed(series)
        if mosaic is not None:
            hidden = hidden + self.radar(mosaic)
        return self.out(self.decoder(hidden))


def sample(rank, number, size=6):
    generator = torch.Generator().manual_seed(500 * rank + number)
    batch = {"series": torch.randn(size, 8, generator=generator)}
    outage = rank == 1 and 20 <= number < 24  # the site's radar had its yearly maintenance
    if not outage:
        batch["mosaic"] = torch.rand(size, WIDTH, generator=generator)
    return batch, batch["series"].sum(1, keepdim=True)


def build(mesh):
    torch.manual_seed(4)
    model = Nowcaster()
    fully_shard(model.radar, mesh=mesh)
    fully_shard(model.decoder, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for part in (model.radar, model.decoder, model):
        part.set_force_sum_reduction_for_comms(True)  # Gloo has no average
    return model


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = build(init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for number in range(300):
        batch, rain = sample(rank, number)
        loss = nn.functional.mse_loss(model(**batch), rain)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.05)
        if number % 5 == 0:
            print(f"rank {rank} {number} {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
