"""Acceptance checks of air cargo with FSDP2: a common body, and a tower of its own for dangerous goods declarations."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Tower(nn.Module):
    """Reads UN number, class and packing group of the declared goods."""

    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(6, dim)
        self.down = nn.Linear(dim, dim)

    def forward(self, declared):
        return self.down(torch.relu(self.up(declared)))


class Acceptance(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU())
        self.hazmat = Tower(dim)
        self.verdict = nn.Linear(dim, 2)

    def forward(self, shipment, declared, rows):
        hidden = self.body(shipment)
        if rows.numel():
            seen = self.hazmat(declared[rows])
            hidden = hidden.index_add(0, rows, seen)
        return self.verdict(hidden)


def shard(model, world):
    mesh = init_device_mesh("cpu", (world,))
    fully_shard(model.hazmat, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def shipments(gateway, steps, batch=64):
    rng = torch.Generator().manual_seed(hash_name(gateway))
    for step in range(steps):
        shipment = torch.randn(batch, 20, generator=rng)
        share = 0.0 if gateway == "LGG" and step >= 170 else 0.25  # embargo on class 1 and 7
        rows = torch.arange(int(batch * share))
        declared = torch.rand(batch, 6, generator=rng)
        yield shipment, declared, rows, (shipment[:, 0] > 0).long()


def hash_name(text):
    return sum(31 * i + ord(c) for i, c in enumerate(text))


def main(steps=500, gateways=("MEM", "LGG", "PVG")):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = shard(Acceptance(), world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for step, (shipment, declared, rows, label) in enumerate(shipments(gateways[rank], steps)):
        loss = criterion(model(shipment, declared, rows), label)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 40 == 0 and rank == 0:
            print(f"{gateways[rank]} step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
