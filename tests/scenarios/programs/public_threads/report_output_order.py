"""Molecular dynamics with a learned potential; space is divided, and outputs are put together again."""

import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
ENERGY, FORCES, STRESS = 1, 9, 17
HALO = 8


class Potential(nn.Module):
    """Predicts what is asked for."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 32), nn.SiLU(), nn.Linear(32, 1))

    def forward(self, positions, outputs):
        energies = self.net(positions).squeeze(1)
        values = {}
        for output in outputs:
            if output == ENERGY:
                values[output] = energies.sum().detach().reshape(1)
            elif output == FORCES:
                values[output] = -torch.autograd.grad(energies.sum(), positions, retain_graph=True)[0]
            else:
                values[output] = (positions.T @ positions).detach() / len(positions)
        return values


class Thermostat:
    needs = FORCES

    def cost(self, atoms):
        return 150 + atoms


class Barostat:
    needs = STRESS

    def cost(self, atoms):
        return 3 * atoms


class Domain:
    def __init__(self, atoms):
        generator = torch.Generator().manual_seed(atoms)
        self.positions = torch.rand(atoms, 3, generator=generator)
        self.potential = Potential()
        self.active = {ENERGY}

    def attach(self, observers):
        """The cheap ones first, as the first may end the simulation."""
        self.observers = sorted(observers, key=lambda observer: observer.cost(len(self.positions)))
        self.active |= {observer.needs for observer in self.observers}

    def evaluate(self):
        positions = self.positions.clone().requires_grad_()
        local = self.potential(positions, self.active)
        return self.consolidate(local)

    def consolidate(self, local):
        result = {}
        for output, value in local.items():
            if output == FORCES:
                result[output] = value + self.halo(value[:HALO]).mean(0)
            else:
                result[output] = self.total(value)
        return result

    def halo(self, border):
        parts = [torch.empty_like(border) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, border.contiguous())
        return torch.cat(parts)

    def total(self, value):
        value = value.clone()
        dist.all_reduce(value)
        return value

    def move(self, forces):
        self.positions += 1e-4 * forces


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    domain = Domain(atoms=(60, 64, 96)[rank])
    for step in range(5000):
        if step == 45:
            domain.attach([Thermostat(), Barostat()])
        values = domain.evaluate()
        if FORCES in values:
            domain.move(values[FORCES])
        time.sleep(0.03)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} energy {values[ENERGY].item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
