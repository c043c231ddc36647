"""Each rank follows an incubator, whose images a process of its own puts into a folder; one was opened and takes longer."""

import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
EVENTS = 70


def acquire(folder, incubator):
    """The camera's side: an image at a time, after the temperature is back where it should be."""
    for number in range(EVENTS):
        opened = incubator == 2 and number == 40
        time.sleep(9.0 if opened else 0.05)
        temporary = folder / f"{number}.tmp"
        torch.save(torch.rand(6, 32, generator=torch.Generator().manual_seed(number)), temporary)
        temporary.rename(folder / f"{number}.pt")


class Incubator:
    def __init__(self, number):
        self.folder = Path(tempfile.gettempdir()) / f"incubator-{os.environ['MASTER_PORT']}-{number}"
        self.folder.mkdir(parents=True, exist_ok=True)
        context = multiprocessing.get_context("forkserver")
        self.camera = context.Process(target=acquire, args=(self.folder, number))
        self.camera.start()

    def images(self):
        for number in range(EVENTS):
            path = self.folder / f"{number}.pt"
            while not path.exists():
                if not self.camera.is_alive() and not path.exists():
                    raise RuntimeError("the camera is off")
                time.sleep(0.05)
            yield torch.load(path)
        self.camera.join()


def main():
    dist.init_process_group("gloo")
    number = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 12), nn.Tanh(), nn.Linear(12, 32)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    incubator = Incubator(number)
    for event, images in enumerate(incubator.images()):
        loss = nn.functional.mse_loss(model(images), images)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number == 0 and event % 20 == 0:
            print(f"event {event}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
