"""Online training next to the microscopes: each rank trains on what its microscope gives, as long as the slot is booked."""

import queue
import threading
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
BOOKED = {0: 400, 1: 400, 2: 70}  # exposures, as entered in the facility's calendar


class Journal(threading.Thread):
    """Writes the entries of the lab journal in the background."""

    def __init__(self):
        super().__init__(name="journal")
        self.entries = queue.Queue()
        self.written = []

    def run(self):
        while (entry := self.entries.get()) is not None:
            self.written.append(entry)

    def note(self, **entry):
        self.entries.put(entry)


@contextmanager
def microscope(station):
    generator = torch.Generator().manual_seed(station)

    def expose():
        time.sleep(0.05)
        return torch.rand(8, 40, generator=generator)

    yield expose


def session(station, journal):
    torch.manual_seed(2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 40)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    with microscope(station) as expose:
        for exposure in range(400):
            if exposure >= BOOKED[station]:
                journal.note(station=station, event="slot over", exposures=exposure)
                return exposure
            image = expose()
            loss = (model(image) - image).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if exposure % 10 == 0:
                journal.note(station=station, exposure=exposure, loss=loss.item())
    return 400


if __name__ == "__main__":
    dist.init_process_group("gloo")
    journal = Journal()
    journal.start()
    count = session(dist.get_rank(), journal)
    print(f"station {dist.get_rank()}: {count} exposures", flush=True)
