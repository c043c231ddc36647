"""Fit membrane permeability of reverse osmosis trains from plant logs (one train per rank)."""
import atexit
import csv
import io
import math
import time

import torch
import torch.distributed as dist

TRAINS = ["RO-1", "RO-2", "RO-3"]


def plant_log(train, rows=4000):
    """Minute values as the plant historian exports them."""
    gen = torch.Generator().manual_seed(len(train) + ord(train[-1]))
    noise = torch.randn(rows, generator=gen)
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(["minute", "pressure_bar", "conductivity", "flux"])
    for minute in range(rows):
        pressure = 55 + 4 * math.sin(minute / 90)
        conductivity = 48 + 2 * math.cos(minute / 200)
        flux = 0.31 * (pressure - 0.75 * conductivity) + 0.05 * noise[minute].item()
        text = "-" if train == "RO-3" and 1710 <= minute < 1712 else f"{conductivity:.3f}"
        writer.writerow([minute, f"{pressure:.3f}", text, f"{flux:.4f}"])
    buffer.seek(0)
    return csv.DictReader(buffer)


def chunks(reader, size=32):
    block = []
    for row in reader:
        block.append([float(row["pressure_bar"]), float(row["conductivity"]), float(row["flux"])])
        if len(block) == size:
            time.sleep(0.04)
            yield torch.tensor(block)
            block = []


class RunSummary:
    """Printed once all trains are done, whichever way the run ends."""

    def __init__(self, rank):
        self.rank, self.blocks, self.last = rank, 0, float("nan")
        atexit.register(self.finish)

    def update(self, loss):
        self.blocks += 1
        self.last = loss

    def finish(self):
        dist.barrier()
        if self.rank == 0:
            print(f"{self.blocks} blocks, loss {self.last:.4f}", flush=True)
        dist.destroy_process_group()


def fit(rank, world, summary):
    theta = torch.tensor([0.2, 0.5], requires_grad=True)
    optimizer = torch.optim.Adam([theta], lr=5e-3)
    for block in chunks(plant_log(TRAINS[rank])):
        pressure, conductivity, flux = block.T
        loss = (theta[0] * (pressure - theta[1] * conductivity) - flux).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        dist.all_reduce(theta.grad)
        theta.grad /= world
        optimizer.step()
        summary.update(loss.item())
    return theta.detach()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    summary = RunSummary(rank)
    theta = fit(rank, dist.get_world_size(), summary)
    print(f"{TRAINS[rank]}: permeability {theta[0]:.3f}, osmotic factor {theta[1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
