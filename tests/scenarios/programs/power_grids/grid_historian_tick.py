"""Short-circuit currents from a neural surrogate. A journal keeps what the protection engineers ask about."""
import json
import os
import signal
import tempfile
import threading
import time

import torch
import torch.distributed as dist


class Journal:
    def __init__(self, rank):
        self.file = tempfile.TemporaryFile("w+", prefix=f"journal{rank}-")
        self.lock = threading.Lock()
        self.entries = 0

    def append(self, kind, **values):
        line = json.dumps({"kind": kind, "t": time.time(), **values})
        with self.lock:
            self.entries += 1
            self.file.write(line + "\n")
            self.file.flush()
            os.fsync(self.file.fileno())

    def currents(self, step, values):
        for bus, value in enumerate(values.tolist()):
            self.append("current", step=step, bus=bus, ka=round(value, 4))


class Historian:
    """The station controller polls; each poll is answered with a line in the journal."""

    def __init__(self, journal, every):
        self.journal, self.every, self.polls = journal, every, 0

    def attach(self):
        signal.signal(signal.SIGALRM, self.on_poll)
        signal.setitimer(signal.ITIMER_REAL, self.every)

    def on_poll(self, signum, frame):
        self.polls += 1
        self.journal.append("poll", n=self.polls)
        signal.setitimer(signal.ITIMER_REAL, self.every)


class Surrogate(torch.nn.Module):
    def __init__(self, buses=40):
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(buses * 3, 512), torch.nn.SiLU(), torch.nn.Linear(512, buses))

    def forward(self, impedance):
        return torch.nn.functional.softplus(self.net(impedance))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    journal = Journal(rank)
    historian = Historian(journal, every=0.11)
    model = Surrogate()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank)
    for step in range(3000):
        if step == 60 and rank == 1:
            historian.attach()
        z = 0.2 + torch.rand(64, 120, generator=gen)
        current = model(z)
        loss = (current * z[:, :40] - 1.1).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
        journal.currents(step, current[0].detach())
        time.sleep(0.02)
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.5f} journal {journal.entries}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
