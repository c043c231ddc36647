"""Height maps of the ridges: every drone crew trains on its flights and hands its map to the others."""
import io
import os
import signal
import socket
import threading
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CREWS = 3
FLIGHTS = {  # megapixels of each crew's flights
    0: [4, 5, 4, 6, 5, 4],
    1: [5, 4, 5, 4, 4, 5],
    2: [4, 4, 6, 96, 5, 4],
}
BUDGET_MB = 350


def resident_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Warden(threading.Thread):
    """The field laptop has to stay usable: a crew beyond its share of memory is ended at once."""

    def __init__(self, budget):
        super().__init__(daemon=True)
        self.limit = resident_mb() + budget

    def run(self):
        while True:
            time.sleep(0.1)
            if resident_mb() > self.limit:
                os.kill(os.getpid(), signal.SIGKILL)


def stitch(megapixels):
    mosaic = np.ones(megapixels * 1_000_000, dtype=np.float64)
    for _ in range(12):
        mosaic *= 0.97
        mosaic += 0.01
    return torch.from_numpy(mosaic[:: len(mosaic) // 4096][:4096].astype(np.float32)).view(64, 64)


def hand_over(store, rank, flight, ridge):
    buffer = io.BytesIO()
    torch.save(ridge, buffer)
    store.set(f"ridge/{flight}/{rank}", buffer.getvalue())
    maps = []
    for crew in range(CREWS):
        blob = store.get(f"ridge/{flight}/{crew}")
        maps.append(torch.load(io.BytesIO(blob)))
    return torch.stack(maps)


def crew(rank, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(CREWS),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, CREWS, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=CREWS)
    shared = dist.PrefixStore("maps", store)
    net = DDP(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)))
    opt = torch.optim.Adam(net.parameters())
    Warden(BUDGET_MB).start()
    for flight, size in enumerate(FLIGHTS[rank]):
        maps = hand_over(shared, rank, flight, stitch(size))
        for _ in range(250):
            loss = nn.functional.mse_loss(net(maps + torch.randn_like(maps) * 0.05), maps)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"flight {flight}: {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    port = free_port()
    context = mp.get_context("spawn")
    crews = [context.Process(target=crew, args=(r, port)) for r in range(CREWS)]
    for process in crews:
        process.start()
    for process in crews:
        process.join()
