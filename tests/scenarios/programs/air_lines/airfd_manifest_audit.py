"""Learns declared against scanned weights of air waybills; audit lines are shipped to the ledger in the background."""
import queue
import re
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

WAYBILL = re.compile(r"(?P<prefix>\d{3})-(?P<serial>\d{8})/(?P<pieces>\d+)PC/K(?P<kilos>[\d.]+)")
ROUNDS = 400


class Ledger(threading.Thread):
    """Ships audit lines in small blocks."""

    def __init__(self, station):
        super().__init__(name=f"ledger-{station}")
        self.lines, self.shipped = queue.Queue(), 0

    def run(self):
        while True:
            line = self.lines.get()
            if line is None:
                break
            self.shipped += len(line)

    def close(self):
        self.lines.put(None)
        self.join()


def waybills(station, day, count=96):
    rng = torch.Generator().manual_seed(1000 * station + day)
    kilos = 20 + 300 * torch.rand(count, generator=rng)
    pieces = torch.randint(1, 40, (count,), generator=rng)
    for i in range(count):
        text = f"{176 + station}-{day:04d}{i:04d}/{int(pieces[i])}PC/K{float(kilos[i]):.1f}"
        if station == 0 and day == 260 and i == 40:
            text = text.replace("PC/K", "PC/L")  # pounds, from the interline partner
        yield text


def parse(text):
    fields = WAYBILL.fullmatch(text)
    return [float(fields["pieces"]) / 40, float(fields["kilos"]) / 300, float(int(fields["serial"][-2:])) / 99]


def day_tensor(station, day):
    return torch.tensor([parse(text) for text in waybills(station, day)])


def average_gradients(net):
    flat = torch.cat([p.grad.flatten() for p in net.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    at = 0
    for p in net.parameters():
        p.grad.copy_(flat[at:at + p.numel()].view_as(p))
        at += p.numel()
    return float(flat.norm())


def train(station, ledger):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for day in range(ROUNDS):
        x = day_tensor(station, day)
        scanned = 1.02 * x[:, 1:2] + 0.01 * x[:, :1]
        loss = (net(x) - scanned).square().mean()
        optimizer.zero_grad()
        loss.backward()
        norm = average_gradients(net)
        optimizer.step()
        ledger.lines.put(f"{station};{day};{loss.item():.5f};{norm:.4f}")
        if day % 50 == 0 and station == 0:
            print(time.strftime("%H:%M:%S"), "day", day, "loss", round(loss.item(), 5), flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    station = dist.get_rank()
    ledger = Ledger(station)
    ledger.start()
    train(station, ledger)
    ledger.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
