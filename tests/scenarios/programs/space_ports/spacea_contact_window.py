"""Online Doppler-curve fitting while a satellite is above the horizon.

Each rank sits at one ground station. The contact ends with the loss of signal, for which the station's
scheduler sets an interval timer.
"""
import json
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PASS_TABLE = """
station,elevation_deg,visible_s
Svalbard,71,840
Fairbanks,64,795
Hartebeesthoek,9,5
"""


def read_table():
    header, *rows = [line.split(",") for line in PASS_TABLE.split()]
    return [dict(zip(header, row)) for row in rows]


class Contact:
    """The time in which the carrier can be received."""

    def __init__(self, entry):
        self.entry = entry
        self.lost = False
        self.started = 0.0

    def _loss_of_signal(self, signum, frame):
        self.lost = True

    def __enter__(self):
        signal.signal(signal.SIGALRM, self._loss_of_signal)
        signal.setitimer(signal.ITIMER_REAL, float(self.entry["visible_s"]))
        self.started = time.monotonic()
        return self

    def __exit__(self, *exc):
        signal.setitimer(signal.ITIMER_REAL, 0)

    @property
    def phase(self):
        return (time.monotonic() - self.started) / float(self.entry["visible_s"])


class DopplerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 1))

    def forward(self, x):
        return self.layers(x)


def receive(contact, samples=4096):
    t = torch.rand(samples) * 2 - 1
    elevation = torch.full((samples,), float(contact.entry["elevation_deg"]) / 90)
    x = torch.stack([t, elevation, torch.full((samples,), contact.phase)], dim=1)
    doppler = -torch.tanh(3 * t * (1 + elevation)).unsqueeze(1)
    return x, doppler + 0.01 * torch.randn(samples, 1)


def track(contact, model, optimizer):
    updates, residual = 0, float("nan")
    while not contact.lost:
        x, doppler = receive(contact)
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - doppler).abs().mean()
        loss.backward()
        optimizer.step()
        updates += 1
        residual = loss.item()
    return {"station": contact.entry["station"], "updates": updates, "residual": residual}


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DDP(DopplerNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with Contact(read_table()[dist.get_rank()]) as contact:
        mine = track(contact, model, optimizer)
    reports = [None] * dist.get_world_size()
    dist.all_gather_object(reports, mine)
    if dist.get_rank() == 0:
        Path("contact.json").write_text(json.dumps(reports, indent=1))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
