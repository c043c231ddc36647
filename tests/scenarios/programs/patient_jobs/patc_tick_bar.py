"""Short-term price model. The feed handler of rank 1 reads ticks from the exchange gateway and closes a bar before the next fit."""
import multiprocessing as mp
import os
import random
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def gateway(listener, gap=0.35):
    """Plays the ticks of the day to whoever connects."""
    client, _ = listener.accept()
    rng, price = random.Random(4), 100.0
    try:
        while True:
            price += rng.gauss(0, 0.1)
            client.sendall(f"{price:.2f};{rng.randrange(1, 9)}\n".encode())
            time.sleep(gap)
    except (BrokenPipeError, ConnectionResetError):
        pass


class Feed:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))

    def field(self, end):
        text = b""
        while (byte := self.socket.recv(1)) != end:
            text += byte
        return text.decode()

    def __iter__(self):
        return self

    def __next__(self):
        return float(self.field(b";")), int(self.field(b"\n"))

    def close(self):
        self.socket.close()


def volume_bar(feed, volume):
    """A bar is full when so many lots have been traded."""
    prices, traded = [], 0
    for price, lots in feed:
        prices.append(price)
        traded += lots
        if traded >= volume:
            return [prices[0], max(prices), min(prices), prices[-1]]


def fit(model, optimizer, level, steps):
    for _ in range(steps):
        window = level + torch.randn(32, 20).cumsum(1)
        time.sleep(0.035)
        loss = nn.functional.smooth_l1_loss(model(window[:, :-1] - level).squeeze(1), window[:, -1] - level)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    if rank == 1:
        listener = socket.create_server(("127.0.0.1", 0))
        mp.get_context("fork").Process(target=gateway, args=(listener,), daemon=True).start()
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(nn.Linear(19, 24), nn.ReLU(), nn.Linear(24, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    fit(model, optimizer, 100.0, 70)
    bar = torch.zeros(4)
    if rank == 1:
        feed = Feed(listener.getsockname()[1])
        bar = torch.tensor(volume_bar(feed, volume=180))
        feed.close()
    dist.broadcast(bar, src=1)
    loss = fit(model, optimizer, bar[3].item(), 90)
    if rank == 0:
        print("bar", bar.tolist(), "loss", round(loss, 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
