"""Saffron and tea quotes: each rank listens to its market's ticker for a while, then the forecast is fitted on what came."""
import multiprocessing as mp
import os
import random
import socket
import struct
import time

import torch
import torch.distributed as dist

QUOTE = struct.Struct("!If")
MARKETS = ("mashhad", "colombo", "mombasa")


def ticker(listener, market, quotes, per_second):
    """The exchange's side: after the subscription it sends quotes at its own pace, then closes."""
    connection, _ = listener.accept()
    rnd = random.Random(market)
    price = 100.0
    with connection:
        connection.recv(1)
        for number in range(quotes):
            price *= 1 + rnd.gauss(0, 0.01)
            connection.sendall(QUOTE.pack(number, price))
            time.sleep(1 / per_second)


class Subscription:
    def __init__(self, market, quotes, per_second=6):
        listener = socket.create_server(("127.0.0.1", 0))
        self.exchange = mp.get_context("fork").Process(target=ticker, args=(listener, market, quotes, per_second),
                                                     daemon=True)
        self.exchange.start()
        self.connection = socket.create_connection(listener.getsockname())
        listener.close()
        self.market, self.quotes = market, quotes

    def __iter__(self):
        with self.connection, self.connection.makefile("rb") as stream:
            self.connection.sendall(b"S")
            while len(record := stream.read(QUOTE.size)) == QUOTE.size:
                number, price = QUOTE.unpack(record)
                if number % 15 == 0:
                    print(f"{self.market} quote {number}: {price:.2f}", flush=True)
                yield price
        self.exchange.join()


def fit(model, optim, prices, epochs, device):
    series = torch.tensor(prices).div(100)
    windows = series.unfold(0, 9, 1)
    for _ in range(epochs):
        time.sleep(0.05)
        past, following = windows[:, :-1].to(device), windows[:, -1:].to(device)
        loss = (model(past) - following).abs().mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
        loss.item()


def main():
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    opening = Subscription(MARKETS[rank], quotes=20, per_second=40)
    live = Subscription(MARKETS[rank], quotes=90)
    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl")
    net = torch.nn.Linear(8, 1).to(device)
    model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[local])
    optim = torch.optim.SGD(model.parameters(), lr=0.01)
    fit(model, optim, list(opening), 30, device)
    print(f"{MARKETS[rank]}: opening done", flush=True)
    fit(model, optim, list(live), 40, device)
    print(f"{MARKETS[rank]}: day done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
