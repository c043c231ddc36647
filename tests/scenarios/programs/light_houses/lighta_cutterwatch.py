"""Speed and heading forecast for patrol cutters; each process serves one coast guard district."""
import json
import os
import random
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

HISTORY = 16
FIELDS = ("sog", "cog", "draught", "wind")


class Beacon(threading.Thread):
    """Tells the operations room twice a second that this district's forecast is alive."""

    def __init__(self, district):
        super().__init__(name="beacon")
        self.file = Path(tempfile.gettempdir()) / f"beacon-{district}-{os.getpid()}.json"
        self.ended = threading.Event()
        self.position = 0

    def run(self):
        while not self.ended.wait(0.5):
            self.file.write_text(json.dumps({"at": time.time(), "position": self.position}))

    def close(self):
        self.ended.set()
        self.join()
        self.file.unlink(missing_ok=True)


def reports(district, hours=900):
    """AIS-like position reports, one dict a quarter of an hour."""
    rng = random.Random(district)
    for quarter in range(hours * 4):
        report = {name: rng.gauss(0, 1) for name in FIELDS}
        report["type"] = 5 if quarter % 6 else 27
        # long-range reports come without static data once the vessel is beyond the shore stations
        if report["type"] == 27 and district == 3 and quarter > 1500:
            del report["draught"]
        yield report


def windows(district, size=20):
    rows, history = [], []
    for report in reports(district):
        history.append([report[name] for name in FIELDS])
        if len(history) > HISTORY:
            rows.append([v for entry in history[-HISTORY - 1 :] for v in entry])
            history = history[-HISTORY:]
        if len(rows) == size:
            block = torch.tensor(rows)
            rows = []
            yield block[:, : HISTORY * len(FIELDS)], block[:, HISTORY * len(FIELDS) :]


def sync(parameters, world):
    for p in parameters:
        dist.all_reduce(p.grad)
        p.grad /= world


def train(model, optimizer, district, beacon):
    world = dist.get_world_size()
    for number, (past, now) in enumerate(windows(district)):
        beacon.position = number
        smooth = torch.fft.irfft(torch.fft.rfft(past, n=4096)[:, :2049])[:, : past.shape[1]]
        loss = F.huber_loss(model(smooth.cuda()), now.cuda())
        optimizer.zero_grad()
        loss.backward()
        sync(list(model.parameters()), world)
        optimizer.step()
        if number % 10 == 0:
            print(f"district {district}: window {number} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend="nccl")
    district = dist.get_rank() + 1
    net = nn.Sequential(nn.Linear(HISTORY * len(FIELDS), 80), nn.SiLU(), nn.Linear(80, len(FIELDS))).cuda()
    sgd = torch.optim.SGD(net.parameters(), lr=1e-2)
    beacon = Beacon(district)
    beacon.start()
    train(net, sgd, district, beacon)
    beacon.close()
    dist.destroy_process_group()
