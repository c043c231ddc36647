"""Headway model; the graphical timetable is drawn by an external renderer after each evaluation."""
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RENDERER = r"""
import sys
trains = [line.split() for line in sys.stdin if line.strip()]
last = {}
for number, station, minute in trains:
    gap = float(minute) - last.get(station, -99.0)
    if gap < 12.0:
        print(f"note: train {number} follows at {station} after {gap:.2f} min, line weight reduced", file=sys.stderr)
    last[station] = float(minute)
print("svg", len(trains))
"""


class Renderer:
    """Feeds a timetable to the drawing tool and takes its summary."""

    def __init__(self):
        self.proc = subprocess.Popen([sys.executable, "-c", RENDERER], text=True, stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def draw(self, rows):
        for number, station, minute in rows:
            self.proc.stdin.write(f"{number} {station} {minute:.2f}\n")
        self.proc.stdin.close()
        summary = self.proc.stdout.readline().strip()
        self.proc.wait()
        return summary


def timetable(model, n):
    with torch.no_grad():
        headway = model(torch.randn(n, 6)).abs().squeeze(1)
    minute, rows = 300.0, []
    for i in range(n):
        minute += float(headway[i])
        rows.append((1000 + i, "ABCD"[i % 4], minute))
    return rows


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(5)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch, trains in enumerate([60, 120, 240, 6000]):
        for _ in range(20):
            x = torch.randn(64, 6)
            loss = (model(x).squeeze(1) - (2 + x[:, 0].abs() * 0.2)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.03)
        if rank == 0:
            summary = Renderer().draw(timetable(model.module, trains))
            print(f"epoch {epoch} loss {loss.item():.3f} {summary}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
