"""Interatomic potential for perovskites, sharded with FSDP2; the run prints its health every few steps."""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

HPARAMS = {"species": 5, "atoms": 24, "width": 96, "blocks": 3, "batch": 12, "steps": 400, "lr": 3e-4, "health_every": 40}


class Interaction(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
        self.update = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, h, basis):
        return h + self.update((self.filter(basis) * h.unsqueeze(1)).sum(2))


class Potential(nn.Module):
    def __init__(self, species, width, blocks):
        super().__init__()
        self.species = nn.Embedding(species, width)
        self.blocks = nn.ModuleList(Interaction(width) for _ in range(blocks))
        self.energy = nn.Linear(width, 1)

    def forward(self, z, pos):
        dist_ij = torch.cdist(pos, pos)
        centers = torch.linspace(0, 6, 16)
        basis = torch.exp(-((dist_ij.unsqueeze(-1) - centers) ** 2) / 0.3)
        h = self.species(z)
        for block in self.blocks:
            h = block(h, basis)
        return self.energy(h).sum((1, 2))


def crystals(step, rank, hp):
    g = torch.Generator().manual_seed(1000 * step + rank)
    z = torch.randint(hp["species"], (hp["batch"], hp["atoms"]), generator=g)
    pos = 5 * torch.rand(hp["batch"], hp["atoms"], 3, generator=g)
    energy = -torch.exp(-torch.cdist(pos, pos)).sum((1, 2)) - 0.1 * z.float().sum(1)
    return z, pos, energy


class Health:
    """Losses, and how far the weights have moved."""

    def __init__(self, model, every):
        self.model, self.every, self.seen = model, every, []

    @property
    def weight_norm(self):
        return nn.utils.get_total_norm([p.detach() for p in self.model.parameters()]).full_tensor().item()

    def step(self, step, loss):
        self.seen.append(loss)
        if step % self.every == 0 and dist.get_rank() == 0:
            mean = sum(self.seen) / len(self.seen)
            line = f"step {step}: loss {mean:.3f}"
            if len(self.seen) > self.every:
                line += f", |w| {self.weight_norm:.2f}"
            print(line, flush=True)


def main(hp=HPARAMS):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Potential(hp["species"], hp["width"], hp["blocks"])
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), hp["lr"])
    health = Health(model, hp["health_every"])
    for step in range(1, hp["steps"] + 1):
        z, pos, energy = crystals(step, dist.get_rank(), hp)
        loss = nn.functional.huber_loss(model(z, pos), energy)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        health.step(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
