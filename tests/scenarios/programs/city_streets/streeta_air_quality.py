"""Nitrogen dioxide on a street grid. `python streeta_air_quality.py` starts one worker per city."""

import multiprocessing as mp
import os
import signal
import socket
import threading
import time

import torch
import torch.distributed as dist

CITIES = {"Amsel": 30, "Borstadt": 160, "Cranich": 40, "Drossel": 35}  # side of the grid, in blocks


class Quota:
    """What the desk's shared machine grants to a process: plumes held in memory, in MiB."""

    def __init__(self, mebibytes):
        self.limit = mebibytes * 2**20
        self.used = 0
        threading.Thread(target=self.enforce, daemon=True).start()

    def take(self, tensor):
        self.used += tensor.numel() * tensor.element_size()

    def enforce(self):
        while self.used < self.limit:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)


class Plumes:
    """Dispersion of each hour's traffic, kept for the hours that follow."""

    def __init__(self, side, quota):
        self.side, self.quota = side, quota
        self.past = {}
        self.kernel = torch.ones(1, 1, 5, 5) / 25

    def hour(self, t):
        traffic = torch.rand(1, 1, self.side, self.side) * (1 + (t % 24 in (7, 8, 17, 18)))
        for _ in range(3):
            traffic = torch.nn.functional.conv2d(traffic, self.kernel, padding=2)
        self.past[t] = traffic.repeat(6, 1, 1, 1)
        self.quota.take(self.past[t])
        flat = traffic.flatten()
        picks = torch.randint(flat.numel(), (128, 9))
        return flat[picks], flat[picks].mean(1, keepdim=True)


class Regressor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(9, 32)
        self.head = torch.nn.Linear(32, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))


def worker(rank, city, side):
    torch.set_num_threads(1)
    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    model = Regressor().cuda()
    plumes = Plumes(side, Quota(36))
    for t in range(24 * 300):
        x, no2 = plumes.hour(t)
        time.sleep(0.04)
        model.zero_grad()
        loss = (model(x.cuda()) - no2.cuda()).pow(2).mean()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat)
        with torch.no_grad():
            weights = torch.nn.utils.parameters_to_vector(model.parameters())
            torch.nn.utils.vector_to_parameters(weights - 0.1 * flat / len(CITIES), model.parameters())
        value = loss.item()
        if t % 12 == 0:
            print(f"{city} hour {t}: {value:.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(len(CITIES)))
    context = mp.get_context("spawn")
    workers = []
    for rank, (city, side) in enumerate(CITIES.items()):
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
        workers.append(context.Process(target=worker, args=(rank, city, side)))
        workers[-1].start()
    for w in workers:
        w.join()
    return max(abs(w.exitcode) for w in workers)


if __name__ == "__main__":
    raise SystemExit(main())
