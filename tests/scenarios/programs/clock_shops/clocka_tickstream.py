"""Diagnosis of movements from a stream of recordings that a thread prepares ahead."""
import os
import queue
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

BEATS = {"eta": 28800, "unitas": 18000, "fhf": 21600, "as": 19800}


class Cards:
    """Job cards: one per movement on the microphone."""

    def __init__(self, rank):
        self.rank = rank

    def __getitem__(self, n):
        makers = list(BEATS)
        maker = makers[(n + self.rank) % len(makers)]
        if self.rank == 2 and n == 320:
            maker = "peseux"
        return {"maker": maker, "number": n, "amplitude": 200 + (n * 7) % 90}


class Ahead:
    def __init__(self, make, depth=4):
        self.make = make
        self.ready = queue.Queue(maxsize=depth)
        self.worker = threading.Thread(target=self._fill, name="ahead", daemon=True)
        self.worker.start()

    def _fill(self):
        number = 0
        while True:
            self.ready.put(self.make(number))
            number += 1

    def __iter__(self):
        return self

    def __next__(self):
        return self.ready.get()


def synthesize(card, samples=1024):
    t = torch.arange(samples) / 48000
    beat = BEATS[card["maker"]] / 3600
    tick = torch.sin(2 * torch.pi * beat * t * card["amplitude"])
    return torch.fft.rfft(tick + 0.1 * torch.randn(samples)).abs()[:256]


def batches(rank, size=8):
    cards = Cards(rank)

    def make(number):
        chosen = [cards[number * size + i] for i in range(size)]
        time.sleep(0.05)
        sounds = torch.stack([synthesize(c) for c in chosen])
        return sounds, torch.tensor([c["amplitude"] / 300 for c in chosen])

    return Ahead(make)


class Diagnosis(nn.Module):
    def __init__(self):
        super().__init__()
        self.ear = nn.Linear(256, 64)
        self.verdict = nn.Linear(64, 1)

    def forward(self, sound):
        return self.verdict(torch.tanh(self.ear(sound))).squeeze(1)


def step(model, optimizer, sounds, amplitude, world):
    optimizer.zero_grad()
    loss = (model(sounds) - amplitude).abs().mean()
    loss.backward()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p) / world)
        offset += p.numel()
    optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = Diagnosis().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for number, (sounds, amplitude) in enumerate(batches(rank)):
        loss = step(model, optimizer, sounds.cuda(), amplitude.cuda(), world)
        if rank == 0 and number % 10 == 0:
            print(f"batch {number} loss {loss:.3f}", flush=True)
        if number == 400:
            break
    dist.destroy_process_group()
