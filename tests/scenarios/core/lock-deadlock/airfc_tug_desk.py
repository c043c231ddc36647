"""Push-back times; each worker also runs the tug desk of its terminal, with a limited number of tugs."""
import queue
import threading
import time
from collections import deque

import torch
import torch.distributed as dist
from torch import nn

# departures in one slot: usually one, more in the morning bank of the outer terminal
BANK = {2: {44: 6, 70: 5}}


class TugDesk:
    def __init__(self, tugs=3):
        self.state = threading.Lock()
        self.free = threading.Semaphore(tugs)
        self.requests, self.moving = queue.Queue(), deque()
        threading.Thread(target=self.dispatch, name="dispatch", daemon=True).start()

    def dispatch(self):
        while True:
            flight = self.requests.get()
            with self.state:
                self.free.acquire()
                self.moving.append((flight, time.monotonic()))

    def request(self, flight):
        self.requests.put(flight)

    def settle(self):
        """Tugs that are back from the taxiway."""
        minutes = []
        with self.state:
            while self.moving:
                _, since = self.moving.popleft()
                minutes.append(time.monotonic() - since)
                self.free.release()
        return minutes


class Terminal:
    def __init__(self, number):
        self.number, self.desk = number, TugDesk()
        self.rng = torch.Generator().manual_seed(number)

    def departures(self, slot):
        for k in range(BANK.get(self.number, {}).get(slot, 1)):
            self.desk.request(f"T{self.number}-{slot}-{k}")

    def sample(self):
        x = torch.randn(40, 8, generator=self.rng)
        return x, 3 + x[:, 0] + 0.5 * x[:, 1] * x[:, 2]


def synchronise(model):
    grads = torch.nn.utils.parameters_to_vector([p.grad for p in model.parameters()])
    dist.all_reduce(grads, op=dist.ReduceOp.SUM)
    grads /= dist.get_world_size()
    offset = 0
    for p in model.parameters():
        p.grad = grads[offset : offset + p.numel()].view_as(p).clone()
        offset += p.numel()


def main():
    dist.init_process_group("gloo")
    terminal = Terminal(dist.get_rank())
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    seen = []
    for slot in range(120):
        terminal.departures(slot)
        x, minutes = terminal.sample()
        time.sleep(0.05)
        loss = nn.functional.mse_loss(model(x).squeeze(1), minutes)
        optimizer.zero_grad()
        loss.backward()
        synchronise(model)
        optimizer.step()
        seen += terminal.desk.settle()
        if slot % 20 == 0:
            print(f"terminal {terminal.number} slot {slot}: loss {loss.item():.3f}, {len(seen)} push-backs", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
