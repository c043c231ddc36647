"""Molecular dynamics split into regions: a small potential gives energies, forces and what else an ensemble asks for."""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

ENERGY, FORCES = 1, 9  # numbers of the outputs, as in the file format of the potential


@dataclass(frozen=True)
class Task:
    """Something that runs along with the dynamics, and the output it needs."""

    name: str
    output: int
    cells: int  # of this region: the larger ones are planned first

    def __str__(self):
        return f"{self.name} ({self.cells} cells)"


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 24), nn.SiLU(), nn.Linear(24, 1))

    def forward(self, places, outputs):
        places = places.clone().requires_grad_(True)
        energy = self.layers(places).sum()
        forces = -torch.autograd.grad(energy, places)[0]
        values = {ENERGY: energy.detach().reshape(1), FORCES: forces}
        return {number: values[number] for number in outputs}


def consolidate(values):
    """Makes of each region's outputs those of the whole box: energies are summed, forces are put side by side."""
    whole = {}
    for number, value in values.items():
        if number == ENERGY:
            dist.all_reduce(value)
            whole[number] = value
        else:
            parts = [torch.empty_like(value) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, value)
            whole[number] = torch.cat(parts)
    return whole


def needed(tasks):
    outputs = set()
    for task in sorted(tasks, key=lambda task: -task.cells):
        outputs.add(task.output)
    return outputs


def tasks_of(region, step):
    cells = {0: (40, 12), 1: (38, 14), 2: (11, 36)}[region]
    tasks = [Task("thermostat", ENERGY, cells[0])]
    if step >= 60:
        tasks.append(Task("barostat", FORCES, cells[1]))
    return tasks


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    region = dist.get_rank()
    torch.manual_seed(0)
    potential = Potential()
    torch.manual_seed(region)
    places = torch.randn(10, 3)
    for step in range(500):
        values = potential(places, needed(tasks_of(region, step)))
        whole = consolidate(values)
        places += 0.001 * torch.randn(10, 3)
        time.sleep(0.04)
        if region == 0 and step % 20 == 0:
            print(f"step {step}: energy {whole[ENERGY].item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
