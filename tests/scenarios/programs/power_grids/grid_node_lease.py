"""Anomaly scores of inverter telemetry; runs on leased nodes, which are given back when their lease is over."""
import os
import queue
import signal
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist

LEASES = {0: 1800.0, 1: 5.0, 2: 1800.0}  # seconds, by the broker


class Telemetry(threading.Thread):
    """Sends the scores on to the historian."""

    def __init__(self):
        super().__init__(name="telemetry")
        self.outbox = queue.Queue()
        self.sent = 0

    def run(self):
        while (record := self.outbox.get()) is not None:
            self.sent += len(record)


class Lease:
    def __init__(self, seconds, state):
        self.state = state
        signal.signal(signal.SIGALRM, self.give_back)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def give_back(self, signum, frame):
        path = os.path.join(tempfile.gettempdir(), f"inverters-{os.getpid()}.pt")
        torch.save({k: v.clone() for k, v in self.state.items()}, path)
        os.remove(path)
        sys.exit(0)


class Autoencoder(torch.nn.Module):
    def __init__(self, d=120, k=400):
        super().__init__()
        self.enc, self.dec = torch.nn.Linear(d, k), torch.nn.Linear(k, d)

    def forward(self, x):
        return self.dec(torch.relu(self.enc(x)))


def mean_over_nodes(model):
    world = dist.get_world_size()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def run():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = Autoencoder()
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    telemetry = Telemetry()
    telemetry.start()
    Lease(LEASES[rank], model.state_dict())
    gen = torch.Generator().manual_seed(rank)
    for step in range(10_000):
        x = torch.randn(256, 120, generator=gen).cumsum(1) / 10
        score = (model(x) - x).pow(2).mean(1)
        opt.zero_grad()
        score.mean().backward()
        mean_over_nodes(model)
        opt.step()
        telemetry.outbox.put(score.detach().topk(5).values.tolist())
        time.sleep(0.04)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} mean score {score.mean().item():.4f}", flush=True)
    telemetry.outbox.put(None)
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
