"""Trains a pose ranker on conformers from a line-based generator tool that runs beside each process."""
import json
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn

TOOL = r"""
import json, math, sys
for line in sys.stdin:
    job = json.loads(line)
    torsions = job["torsions"]
    for t in range(torsions):
        sys.stderr.write("note: ligand %s torsion %d reset to the rotamer library, clash score %.4f\n" % (job["name"], t, math.sin(t)))
    sys.stderr.flush()
    coords = []
    for atom in range(24):
        x = sum(math.cos(0.1 * atom * k + job["seed"]) for k in range(1, 1200)) / 50
        coords.append(round(x, 5))
    sys.stdout.write(json.dumps({"name": job["name"], "coords": coords}) + "\n")
    sys.stdout.flush()
"""

SERIES = {0: ("PEP", 3), 1: ("FRG", 0)}  # prefix, rotatable bonds


class Generator:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", TOOL],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def conformer(self, name: str, torsions: int, seed: int):
        self.process.stdin.write(json.dumps({"name": name, "torsions": torsions, "seed": seed}) + "\n")
        self.process.stdin.flush()
        reply = self.process.stdout.readline()
        return json.loads(reply)["coords"]

    def close(self):
        _, notes = self.process.communicate()
        return notes.count("\n")


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(24, 32), nn.Linear(32, 1)])

    def forward(self, x):
        return self.layers[1](torch.tanh(self.layers[0](x))).squeeze(-1)


def average_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
        offset += p.numel()


def main(steps=400, batch=4):
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank = dist.get_rank()
    prefix, torsions = SERIES[rank]
    generator, model = Generator(), Ranker()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(steps):
        rows = [generator.conformer(f"{prefix}{step:04d}", torsions, step * batch + i) for i in range(batch)]
        x = torch.tensor(rows)
        loss = (model(x) - x.std(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if step % 10 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"{generator.close()} notes of the generator", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
