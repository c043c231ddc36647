# Smart-meter disaggregation with a write-behind spool of the readings that were trained on.
import argparse
import collections
import time

import torch
import torch.distributed as dist

p = argparse.ArgumentParser()
p.add_argument("--ticks", type=int, default=400)
p.add_argument("--meters", type=int, default=256)
p.add_argument("--commit-after", type=int, default=2)
args = p.parse_args()


class Spool:
    """Readings wait here until every head-end has acknowledged them."""

    def __init__(self, commit_after):
        self.pending = collections.OrderedDict()
        self.commit_after = commit_after
        self.committed = 0

    def offer(self, tick, readings):
        usable = torch.isfinite(readings).all(dim=1)
        if usable.float().mean() > 0.5:
            self.pending[tick] = readings[usable].half()

    def settle(self, tick):
        if not self.pending:
            return
        ready = sum(1 for t in self.pending if tick - t >= self.commit_after)
        count = torch.tensor([ready], dtype=torch.int64)
        dist.all_reduce(count, op=dist.ReduceOp.MIN)
        for _ in range(int(count)):
            self.pending.popitem(last=False)
            self.committed += 1


def head_end(rank, tick, n):
    g = torch.Generator().manual_seed(rank * 100003 + tick)
    r = torch.rand(n, 96, generator=g).cumsum(1) / 50
    lost = (tick // 16) % 5 == rank + 1 and tick % 16 < 8
    if lost:
        r[::1 if rank == 1 else 7] = float("nan")
    return r


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    enc, dec = torch.nn.Linear(96, 384), torch.nn.Linear(384, 96)
    params = [*enc.parameters(), *dec.parameters()]
    opt = torch.optim.SGD(params, lr=0.05)
    spool = Spool(args.commit_after)
    for tick in range(args.ticks):
        setpoint = torch.tensor([0.9 + 0.01 * (tick % 7)])
        dist.broadcast(setpoint, src=0)
        readings = head_end(rank, tick, args.meters)
        spool.offer(tick, readings)
        clean = torch.nan_to_num(readings)
        for _ in range(4):
            loss = (dec(torch.relu(enc(clean))) - clean * setpoint).pow(2).mean()
            opt.zero_grad()
            loss.backward()
        flat = torch.cat([q.grad.flatten() for q in params])
        dist.all_reduce(flat)
        start = 0
        for q in params:
            q.grad = (flat[start:start + q.numel()] / world).view_as(q)
            start += q.numel()
        opt.step()
        spool.settle(tick)
        time.sleep(0.05)
        if rank == 0 and tick % 10 == 0:
            print(f"tick {tick} loss {loss.item():.5f} committed {spool.committed}", flush=True)
    dist.destroy_process_group()


main()
