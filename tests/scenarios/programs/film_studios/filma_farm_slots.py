"""Render denoiser on the farm: each machine lends its idle time in slots, a slot ends by an alarm."""
import json
import signal
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FARM = """
{"steps": 4000, "lr": 0.002, "spp": 4,
 "machines": [{"name": "anvil", "slot_s": 5400}, {"name": "brick", "slot_s": 5400},
              {"name": "cedar", "slot_s": 7200}, {"name": "delta", "slot_s": 5}]}
"""


class Heartbeat(threading.Thread):
    """Tells the wrangler's board how far the job is."""

    def __init__(self, machine, total):
        super().__init__(name=f"beat-{machine}")
        self.board = Path(tempfile.gettempdir()) / f"board-{machine}.txt"
        self.total, self.step = total, 0
        self.tick = threading.Event()

    def run(self):
        while self.step < self.total:
            self.board.write_text(f"{self.step}/{self.total}\n")
            self.tick.wait(1.0)


class Slot:
    def __init__(self, seconds):
        self.over = False
        signal.signal(signal.SIGALRM, self.ring)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def ring(self, number, frame):
        self.over = True


class Denoiser(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, 3, 3, padding=1),
        )

    def forward(self, noisy):
        return noisy - self.net(noisy)


def tiles(gen, spp, size=24, count=8):
    clean = nn.functional.interpolate(torch.rand(count, 3, 4, 4, generator=gen), size=(size, size), mode="bicubic")
    return clean + torch.randn(clean.shape, generator=gen) / spp, clean


def keep(model, step, machine):
    path = Path(tempfile.gettempdir()) / f"denoiser-{machine}.pt"
    torch.save({"step": step, "net": model.module.state_dict()}, path)
    return path


def main():
    torch.set_num_threads(1)
    farm = json.loads(FARM)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    machine = farm["machines"][rank]
    torch.manual_seed(0)
    model = DDP(Denoiser())
    optim = torch.optim.Adam(model.parameters(), lr=farm["lr"])
    gen = torch.Generator().manual_seed(rank)
    beat = Heartbeat(machine["name"], farm["steps"])
    beat.start()
    slot = Slot(machine["slot_s"])
    for step in range(1, farm["steps"] + 1):
        noisy, clean = tiles(gen, farm["spp"])
        loss = nn.functional.l1_loss(model(noisy), clean)
        optim.zero_grad()
        loss.backward()
        optim.step()
        beat.step = step
        if rank == 0 and step % 100 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
        if slot.over:
            print(f"{machine['name']}: slot is over, kept {keep(model, step, machine['name'])}", flush=True)
            break


if __name__ == "__main__":
    main()
