"""Learned bidders on a balancing market. The clearing house is a process of the launcher; each rank bids for one portfolio."""
import socket
import threading
from multiprocessing import Process
from multiprocessing.connection import Client, Listener

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

BIDDERS, KEY = 3, b"balancing"


class ClearingHouse:
    def __init__(self, port, limit_mwh=180.0):
        self.listener, self.limit = Listener(("127.0.0.1", port), backlog=8, authkey=KEY), limit_mwh

    def run(self):
        lanes = {}
        for _ in range(2 * BIDDERS):
            conn = self.listener.accept()
            who, lane = conn.recv()
            lanes[who, lane] = conn
        for who in range(BIDDERS):
            threading.Thread(target=self.serve, args=(lanes[who, "bids"], lanes[who, "inquiries"])).start()

    def serve(self, bids, inquiries):
        while True:
            interval, volume = bids.recv()
            cost = 40 + 0.1 * volume
            if volume > self.limit:
                # large positions are priced along the portfolio's own reserve curve
                inquiries.send(("reserve_curve", interval))
                cost += max(inquiries.recv())
            bids.send(cost)


class Portfolio:
    def __init__(self, rank, port):
        self.rank = rank
        self.bids, self.inquiries = (self.lane(port, name) for name in ("bids", "inquiries"))
        self.curve = [5.0, 7.5, 11.0]

    def lane(self, port, name):
        conn = Client(("127.0.0.1", port), authkey=KEY)
        conn.send((self.rank, name))
        return conn

    def answer_inquiries(self):
        while self.inquiries.poll(0):
            self.inquiries.recv()
            self.inquiries.send(self.curve)

    def price(self, interval, volume):
        self.bids.send((interval, volume))
        return self.bids.recv()

    def imbalance(self, interval, gen):
        storm = 120.0 if self.rank == 2 and interval >= 70 else 0.0
        return float(60 + 30 * torch.rand((), generator=gen) + storm)


def bidder(rank, meet, market):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{meet}", rank=rank, world_size=BIDDERS)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(32, 800), torch.nn.Tanh(), torch.nn.Linear(800, 1))
    opt = torch.optim.SGD(net.parameters(), lr=1e-4)
    portfolio, gen = Portfolio(rank, market), torch.Generator().manual_seed(rank)
    for interval in range(1000):
        portfolio.answer_inquiries()
        volume = portfolio.imbalance(interval, gen)
        cost = portfolio.price(interval, volume)
        for _ in range(6):
            x = torch.rand(200, 32, generator=gen)
            loss = (net(x).squeeze(1) * 50 - cost * x.mean(1)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
            p.grad /= BIDDERS
        opt.step()
        if rank == 0 and interval % 10 == 0:
            print(f"interval {interval}: {cost:.2f} EUR/MWh", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def house(port):
    ClearingHouse(port).run()


if __name__ == "__main__":
    meet, market = free_port(), free_port()
    desk = Process(target=house, args=(market,))
    desk.start()
    mp.spawn(bidder, args=(meet, market), nprocs=BIDDERS)
