# Soil moisture forecast for drip irrigation. Every station has a file; ranks read their share of the files.
import json
import logging
import math
import os
import tempfile

import torch
import torch.distributed as dist

STATIONS = ["Darjeeling", "Assam", "Nilgiri", "Munnar", "Kericho", "Nandi", "Uji", "Shizuoka", "Yunnan", "Fujian", "Huila"]
HOURS, WINDOW, BATCH = 720, 24, 32


def write_station_files(folder):
    os.makedirs(folder, exist_ok=True)
    for k, name in enumerate(STATIONS):
        moisture = [math.sin(h / 24 + k) * 0.2 + 0.5 for h in range(HOURS)]
        with open(os.path.join(folder, f"{name}.json"), "w") as f:
            json.dump({"station": name, "moisture": moisture}, f)


def windows(path):
    with open(path) as f:
        series = torch.tensor(json.load(f)["moisture"])
    x = series.unfold(0, WINDOW + 1, 1)
    for i in range(0, len(x) - BATCH, BATCH):
        chunk = x[i : i + BATCH]
        yield chunk[:, :-1], chunk[:, -1:]


def reduce_gradients(model, world):
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def evapotranspiration(x):
    """Penman-like correction, iterated over a grid of wind speeds."""
    wind = torch.linspace(0.1, 4.0, 400000).unsqueeze(1)
    factor = torch.tanh(wind * x.mean()).mean()
    for _ in range(6):
        factor = torch.tanh(wind * factor).mean() + 0.1
    return x * factor.clamp(0.5, 1.5)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = os.path.join(tempfile.gettempdir(), f"drip-{os.environ.get('MASTER_PORT', '0')}")
    if rank == 0:
        write_station_files(folder)
    dist.barrier()
    files = sorted(os.listdir(folder))[rank::world]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WINDOW, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        total = 0.0
        for name in files:
            for x, y in windows(os.path.join(folder, name)):
                loss = torch.nn.functional.mse_loss(model(evapotranspiration(x)), y)
                optimizer.zero_grad()
                loss.backward()
                reduce_gradients(model, world)
                optimizer.step()
                total += loss.item()
        dist.barrier()
        if rank == 0:
            logging.info("epoch %d loss %.4f", epoch, total)
    dist.destroy_process_group()


main()
