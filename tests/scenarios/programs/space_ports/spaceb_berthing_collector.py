"""Arm control for berthing: a collector thread steps the contact simulation, the trainer takes its transitions."""
import queue
import threading
import time

import torch
import torch.distributed as dist

DEFAULTS = {"updates": 200, "snapshot_every": 20, "min_yield": 10, "tick": 0.04}


class ContactSim:
    """Arm tip against the berthing ring. In contact phase it resolves fewer, finer transitions."""

    def __init__(self, rank):
        self.rank, self.calls = rank, 0

    def advance(self, tick):
        self.calls += 1
        contact = self.rank == 0 and self.calls >= 40
        time.sleep(25 * tick if contact else tick)
        return torch.randn(6 if contact else 16, 7)


class Collector(threading.Thread):
    def __init__(self, rank, tick):
        super().__init__(name="collector", daemon=True)
        self.sim, self.tick = ContactSim(rank), tick
        self.orders, self.ready = queue.Queue(), queue.Queue()
        self.lock = threading.Lock()
        self.go = threading.Event()
        self.go.set()
        self.steps = 0

    def run(self):
        while True:
            self.orders.get()
            with self.lock:
                batch = self.sim.advance(self.tick)
                self.go.wait()
                self.steps += len(batch)
            self.ready.put(batch)

    def order(self):
        self.orders.put(1)

    def take(self):
        return self.ready.get()

    def pause(self):
        self.go.clear()

    def resume(self):
        self.go.set()

    def state(self):
        with self.lock:
            return {"steps": self.steps, "calls": self.sim.calls}


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.net = torch.nn.Sequential(torch.nn.Linear(7, 32), torch.nn.Tanh(), torch.nn.Linear(32, 7))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.collector = Collector(self.rank, cfg["tick"])
        self.collector.start()
        self.saved = None

    def update(self, batch):
        loss = (self.net(batch) - batch.roll(1, dims=1)).square().mean()
        self.opt.zero_grad()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(self.world)
        self.opt.step()
        time.sleep(self.cfg["tick"])  # arm settles
        return loss.item()

    def snapshot(self, number):
        self.collector.pause()
        self.saved = {"update": number, "collector": self.collector.state(), "net": self.net.state_dict()}
        self.collector.resume()

    def run(self):
        for number in range(1, self.cfg["updates"] + 1):
            self.collector.order()
            batch = self.collector.take()
            if len(batch) < self.cfg["min_yield"]:
                self.collector.order()  # have the next one under way
            loss = self.update(batch)
            if number % self.cfg["snapshot_every"] == 0:
                self.snapshot(number)
                if self.rank == 1:
                    print(f"update {number} loss {loss:.3f} {self.saved['collector']}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(6)
    Trainer(DEFAULTS).run()
    dist.destroy_process_group()
