"""Haemolysis detector; a carrier makes its laps over the track's stations before the next series."""
import functools
import multiprocessing
import socket
import time
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing as tmp
from torch import nn

STATIONS = ("decap", "aliquot", "spin", "recap")
DWELL = {"decap": 0.3, "aliquot": 0.45, "spin": 0.6, "recap": 0.25}
LAPS = 8


class Carrier(NamedTuple):
    laps: int
    trail: tuple


def station(name, inlet, outlet, home):
    while True:
        carrier = inlet.recv()
        if carrier is None:
            outlet.send(None)
            return
        time.sleep(DWELL[name])
        carrier = Carrier(carrier.laps - (name == STATIONS[-1]), carrier.trail[-7:] + (name,))
        (home if carrier.laps == 0 else outlet).send(carrier)


class Track:
    def __init__(self):
        context = multiprocessing.get_context("fork")
        ends = [context.Pipe(duplex=False) for _ in STATIONS]
        self.back, home = context.Pipe(duplex=False)
        self.entry = ends[0][1]
        for index, name in enumerate(STATIONS):
            inlet, outlet = ends[index][0], ends[(index + 1) % len(ends)][1]
            context.Process(target=station, args=(name, inlet, outlet, home), daemon=True).start()

    def circulate(self, laps):
        self.entry.send(Carrier(laps, ()))
        return self.back.recv()

    def park(self):
        self.entry.send(None)


def series(model, opt, count):
    for _ in range(count):
        tube = torch.rand(14, 8)
        time.sleep(0.06)
        loss = nn.functional.huber_loss(model(tube), tube.max(1, keepdim=True).values)
        opt.zero_grad()
        loss.backward()
        opt.step()


def lab(rank, world, port):
    torch.set_num_threads(1)
    track = Track() if rank == 1 else None
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    advance = functools.partial(series, model, torch.optim.SGD(model.parameters(), lr=0.1))
    advance(45)
    stops = torch.zeros(1)
    if track is not None:
        stops += len(track.circulate(LAPS).trail)
        track.park()
    dist.all_reduce(stops)
    advance(40)
    print(f"rank {rank}: {int(stops)} last stops on record", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    tmp.spawn(lab, args=(3, free), nprocs=3)
