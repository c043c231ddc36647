"""Air quality: stations dealt over ranks; figures go to the department's web server by a thread."""
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

UNITS = {"ug/m3": 1.0, "mg/m3": 1000.0, "ppb": 1.96}


class Uploader:
    def __init__(self):
        self.figures = queue.Queue()
        self.sent = []
        threading.Thread(target=self._serve, name="uploader").start()

    def _serve(self):
        while (figure := self.figures.get()) is not None:
            time.sleep(0.01)
            self.sent.append(figure)

    def close(self):
        self.figures.put(None)


def readings(rank):
    generator = torch.Generator().manual_seed(rank)
    for hour in range(2000):
        unit = ("ug/m3", "ppb", "ug/m3")[rank]
        if rank == 1 and hour == 26:
            unit = "µg/m³"
        yield {"hour": hour, "unit": unit, "ozone": 40 + 8 * torch.randn(24, 5, generator=generator)}


def prepare(reading):
    values = reading["ozone"] * UNITS[reading["unit"]] / 50
    return values[:, :4], values[:, 4:]


def train(uploader):
    rank = dist.get_rank()
    torch.manual_seed(17)
    model = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for reading in readings(rank):
        inputs, target = prepare(reading)
        loss = nn.functional.l1_loss(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.08)
        uploader.figures.put((reading["hour"], loss.item()))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    uploader = Uploader()
    train(uploader)
    uploader.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
