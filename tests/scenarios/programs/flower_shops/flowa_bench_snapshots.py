"""Vigour of seedlings on benches; now and then a snapshot of all benches is put together beside the training."""
import threading
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Bench:
    number: int
    exposure: float = 0.0  # seconds the shelf camera needs in this light
    history: list = field(default_factory=list)

    def seedlings(self, step):
        g = torch.Generator().manual_seed(self.number + 10 * step)
        x = torch.rand(24, 30, generator=g)
        return x, x[:, :3].prod(1, keepdim=True)

    def shelf(self):
        time.sleep(self.exposure)
        return {"bench": self.number, "last": self.history[-1], "best": min(self.history)}


class Snapshot:
    """Collects the shelves of all benches on a thread of its own."""

    def __init__(self, bench, every=55):
        self.bench, self.every = bench, every
        self.thread = None

    def _collect(self, step):
        shelves = [None] * dist.get_world_size()
        dist.all_gather_object(shelves, self.bench.shelf())
        if self.bench.number == 0:
            print(f"snapshot {step}: {shelves}", flush=True)

    def maybe(self, step):
        if step and step % self.every == 0:
            self.wait()
            self.thread = threading.Thread(target=self._collect, args=(step,), name="snapshot")
            self.thread.start()

    def wait(self):
        if self.thread is not None:
            self.thread.join()


def preview(model, x):
    """A coarse picture for the gardener's tablet."""
    with torch.no_grad():
        picture = torch.cat([model(x + 0.01 * k) for k in range(20)], 1)
    for _ in range(5):
        torch.linalg.svd(torch.rand(180, 180))
    return picture.round(decimals=1)


def step_together(model, opt):
    grads = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(grads)
    grads.div_(dist.get_world_size())
    for p, g in zip(model.parameters(), grads.split([p.numel() for p in model.parameters()])):
        p.grad.copy_(g.view_as(p))
    opt.step()


def main(steps=150):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    bench = Bench(rank, exposure={0: 4.0}.get(rank, 0.0))
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(30, 64), nn.SiLU(), nn.Linear(64, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    snapshot = Snapshot(bench)
    for step in range(steps):
        x, y = bench.seedlings(step)
        opt.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        step_together(model, opt)
        bench.history.append(loss.item())
        snapshot.maybe(step)
        preview(model, x)
        if step % 25 == 0:
            print(f"bench {rank} step {step} loss {loss.item():.4f}", flush=True)
    snapshot.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
