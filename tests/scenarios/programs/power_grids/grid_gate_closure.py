"""Online learning on the balancing market: a few updates after each gate closure, then idle until the next one."""
import math
import time

import torch
import torch.distributed as dist

GATE = 12.0  # seconds here, a quarter of an hour on the market


class Gates:
    def __init__(self, opened):
        self.opened = opened

    def wait_for_next(self):
        now = time.time() - self.opened
        nxt = (math.floor(now / GATE) + 1) * GATE
        time.sleep(nxt - now)
        return round(nxt / GATE)


class OnlineBidder:
    def __init__(self, rank):
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(36, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=1e-2)
        self.gen = torch.Generator().manual_seed(rank)

    def update(self, steps):
        for _ in range(steps):
            x = torch.rand(200, 36, generator=self.gen)
            loss = (self.net(x).squeeze(1) - x.mean(1)).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            for p in self.net.parameters():
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
            self.opt.step()
            time.sleep(0.03)
        return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    opened = torch.tensor([time.time()], dtype=torch.float64)
    dist.broadcast(opened, src=0)
    gates, bidder = Gates(opened.item()), OnlineBidder(rank)
    loss = bidder.update(50)
    for _ in range(2):
        number = gates.wait_for_next()
        loss = bidder.update(30)
        if rank == 0:
            print(f"gate {number} closed, loss {loss:.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
