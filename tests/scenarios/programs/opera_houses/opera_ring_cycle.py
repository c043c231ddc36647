"""Embeds whole evenings of the Ring for a similarity search; three processes, one per night of recordings."""
import datetime
import multiprocessing
import os
import signal
import socket
import threading
import time

import torch
import torch.distributed as dist

WORLD = 3
# minutes of each take, by night
TAKES = [
    [2, 2, 3, 2] * 25,
    [2, 3, 2, 3] * 25,
    [3, 2, 2, 3] * 16 + [90] + [2, 3, 2, 2, 3] * 7,
]


def resident_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


class Quota(threading.Thread):
    """The site's rule: a process that needs more than it asked for is ended at once."""

    def __init__(self, extra_mb):
        super().__init__(daemon=True)
        self.limit = resident_mb() + extra_mb

    def run(self):
        while resident_mb() < self.limit:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGKILL)


def load(minutes, generator):
    """A take at 16 kHz; long ones come in one piece."""
    wave = torch.randn(minutes * 60 * 16000 // 2, generator=generator)
    frames = wave[: len(wave) // 1024 * 1024].view(-1, 1024)
    return torch.fft.rfft(frames).abs()


def embed(frames, projection):
    return torch.tanh(frames @ projection).mean(0)


def night(rank, port):
    torch.set_num_threads(1)
    hours = datetime.timedelta(hours=6)
    store = dist.TCPStore("127.0.0.1", port, WORLD, rank == 0, timeout=hours)
    dist.init_process_group("gloo", store=dist.PrefixStore("gloo", store), rank=rank, world_size=WORLD)
    programme = dist.PrefixStore("programme", store)
    Quota(extra_mb=220).start()
    generator = torch.Generator().manual_seed(rank)
    projection = torch.randn(513, 32, generator=torch.Generator().manual_seed(0)) / 20
    index = []
    for number, minutes in enumerate(TAKES[rank]):
        frames = load(minutes, generator)
        programme.set(f"{number}/{rank}", str(len(frames)))
        sizes = [int(programme.get(f"{number}/{r}")) for r in range(WORLD)]
        vector = embed(frames, projection) * len(frames) / sum(sizes)
        dist.all_reduce(vector)
        index.append(vector / vector.norm())
    similarity = torch.stack(index) @ torch.stack(index).T
    if rank == 0:
        print("closest takes:", similarity.fill_diagonal_(-1).argmax().item(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    port = free_port()
    nights = [context.Process(target=night, args=(rank, port), name=f"night-{rank}") for rank in range(WORLD)]
    for process in nights:
        process.start()
    for process in nights:
        process.join()
