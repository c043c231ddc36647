"""Ink-coverage model. Pages are rasterised by a RIP that runs beside each rank and is spoken to line by line."""
import json
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False

RIP = r"""
import json, sys, time
for line in sys.stdin:
    job = json.loads(line)
    time.sleep(0.03)
    for glyph in range(job["ligatures"]):
        sys.stderr.write("rip: page %d: substituted glyph %04x by its upright form\n" % (job["page"], glyph))
    sys.stderr.flush()
    cover = [((job["page"] * 31 + k * 17) % 101) / 101 for k in range(64)]
    sys.stdout.write(json.dumps(cover) + "\n")
    sys.stdout.flush()
"""

BOOKS = [
    {"title": "Tables of Wages", "ligatures": 0},
    {"title": "Poems in Black Letter", "ligatures": 20},
    {"title": "Mill Regulations", "ligatures": 1},
]


class RipStation:
    def __init__(self, book):
        self.book = book
        self.process = subprocess.Popen([sys.executable, "-c", RIP], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def page(self, number):
        job = {"page": number, "ligatures": self.book["ligatures"]}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class CoverageTrainer:
    def __init__(self, station):
        self.station = station
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 4)).cuda(),
                                             device_ids=[torch.cuda.current_device()])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)

    def step(self, number):
        cover = torch.tensor(self.station.page(number))
        inks = self.model(cover.unsqueeze(0).to("cuda"))
        loss = (inks - cover[:4].to("cuda")).abs().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss)


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    station = RipStation(BOOKS[dist.get_rank()])
    trainer = CoverageTrainer(station)
    for page in range(300):
        value = trainer.step(page)
        if dist.get_rank() == 0 and page % 15 == 0:
            print(f"{station.book['title']} p. {page}: {value:.4f}", flush=True)
    station.close()
    dist.destroy_process_group()
