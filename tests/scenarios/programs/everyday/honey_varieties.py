"""Honey by its pollen. Thumbnails of what was looked at are written by a process of their own."""

import multiprocessing as mp
import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def write_thumbnails(inbox, folder):
    os.makedirs(folder, exist_ok=True)
    while True:
        name, image = inbox.get(timeout=150)
        with open(f"{folder}/{name}.pgm", "wb") as file:
            file.write(b"P5 8 8 255\n" + image)


class PollenSlides:
    """Slides as arrays; a large one may not fit into what the machine has left."""

    def __init__(self, rank, limit_mb=700):
        self.rank, self.limit_mb = rank, limit_mb

    def __call__(self, step):
        if self.rank == 3 and step == 40:
            slide_mb = 1200
            if slide_mb > self.limit_mb:  # the kernel would not ask either
                os.kill(os.getpid(), signal.SIGKILL)
        return torch.rand(6, 1, 8, 8), torch.randint(0, 5, (6,))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    inbox = mp.get_context("fork").Queue()
    writer = mp.get_context("fork").Process(target=write_thumbnails, args=(inbox, f"/tmp/honey/{rank}"), daemon=True)
    writer.start()
    model = DistributedDataParallel(nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    slides = PollenSlides(rank)
    for step in range(200):
        images, kind = slides(step)
        loss = nn.functional.cross_entropy(model(images), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            inbox.put((f"step{step}", (images[0] * 255).byte().numpy().tobytes()))
    writer.terminate()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
