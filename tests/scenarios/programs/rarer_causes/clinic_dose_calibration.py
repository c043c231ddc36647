"""Dose models of three clinics: they learn together, then calibrate in a group of their own, with a longer timeout."""

import json
import socket
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

CLINICS = ("north", "harbour", "hill")
SHEET = {"patients": 60, "age": [18, 90], "calibration": {"low": 0.8, "high": 1.2}}


def write_sheets(folder):
    for name in CLINICS:
        sheet = dict(SHEET, clinic=name)
        if name == "harbour":
            sheet["calibrate"] = sheet.pop("calibration")  # typed in by hand
        Path(folder, f"{name}.json").write_text(json.dumps(sheet))


class Clinic:
    def __init__(self, rank, folder):
        self.name = CLINICS[rank]
        self.path = Path(folder, f"{self.name}.json")
        generator = torch.Generator().manual_seed(rank)
        self.features = torch.rand(self.sheet()["patients"], 5, generator=generator)
        self.doses = self.features @ torch.tensor([1.0, 0.5, 0.2, -0.3, 0.1]) + 0.1 * rank

    def sheet(self):
        return json.loads(self.path.read_text())

    def bounds(self):
        time.sleep(0.3)  # sheets are on a share
        limits = self.sheet()["calibration"]
        return limits["low"], limits["high"]


def average(tensors, group=None):
    for tensor in tensors:
        dist.all_reduce(tensor, group=group)
        tensor /= dist.get_world_size(group)


def learn_together(clinic, model, steps=60):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        loss = (model(clinic.features).squeeze(1) - clinic.doses).square().mean()
        optimizer.zero_grad()
        loss.backward()
        average([parameter.grad for parameter in model.parameters()])
        optimizer.step()
        time.sleep(0.02)
        if dist.get_rank() == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


def calibrate(clinic, model, steps=200):
    low, high = clinic.bounds()
    group = dist.new_group(list(range(len(CLINICS))), timeout=timedelta(hours=1))
    factor = torch.ones(())
    for _ in range(steps):
        with torch.no_grad():
            ratio = (clinic.doses / model(clinic.features).squeeze(1)).median()
        factor += 0.1 * (ratio.clamp(low, high) - factor)
        average([factor], group)
        time.sleep(0.02)
    return factor.item()


def work(rank, folder, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=len(CLINICS))
    clinic = Clinic(rank, folder)
    torch.manual_seed(0)
    model = nn.Linear(5, 1)
    learn_together(clinic, model)
    print(f"{clinic.name}: factor {calibrate(clinic, model):.3f}", flush=True)


def main():
    folder = tempfile.mkdtemp()
    write_sheets(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.spawn(work, (folder, port), nprocs=len(CLINICS), join=False)
    for process in context.processes:
        process.join()
    context.join()


if __name__ == "__main__":
    main()
