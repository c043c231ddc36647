"""Species names for herbarium sheets; scanned sheets are kept in a cache with a limit in bytes."""
import argparse
import threading
import weakref
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn


class Ledger:
    """Counts the bytes of the sheets that are alive."""

    def __init__(self):
        self.lock = threading.Lock()
        self.alive = 0

    def enter(self, sheet):
        self.alive += sheet.size
        weakref.finalize(sheet, self.leave, sheet.size)

    def leave(self, size):
        with self.lock:
            self.alive -= size


class Sheet:
    def __init__(self, pixels):
        self.pixels = pixels
        self.size = pixels.numel() * pixels.element_size()


class SheetCache:
    def __init__(self, ledger, limit):
        self.ledger, self.limit = ledger, limit
        self.sheets = OrderedDict()

    def get(self, key, scan):
        if key in self.sheets:
            self.sheets.move_to_end(key)
            return self.sheets[key].pixels
        sheet = Sheet(scan(key))
        with self.ledger.lock:
            self.ledger.enter(sheet)
            self.sheets[key] = sheet
            while self.ledger.alive > self.limit and len(self.sheets) > 1:
                self.sheets.popitem(last=False)
        return sheet.pixels


class Cabinet:
    """The drawers that one process works through; drawer 3 holds the folio sheets."""

    def __init__(self, drawer):
        self.drawer = drawer
        self.side = 96 if drawer == 3 else 32

    def scan(self, key):
        g = torch.Generator().manual_seed(key)
        torch.linalg.svd(torch.rand(180, 180, generator=g))  # deskew
        return torch.rand(self.side, self.side, generator=g)

    def batch(self, step, cache, size=4):
        keys = [1000 * self.drawer + (step * 3 + i) % 400 for i in range(size)]
        pages = [cache.get(k, self.scan) for k in keys]
        x = torch.stack([nn.functional.adaptive_avg_pool2d(p[None, None], 8).flatten() for p in pages])
        return x, torch.tensor([k % 10 for k in keys])


def run(args):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    cabinet = Cabinet(drawer=rank + 1)
    cache = SheetCache(Ledger(), int(args.megabytes * 2**20))
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10)))
    opt = torch.optim.Adam(net.parameters())
    for step in range(args.steps):
        x, y = cabinet.batch(step, cache)
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"drawer {cabinet.drawer} step {step} loss {loss.item():.3f} cache {len(cache.sheets)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=6)
    parser.add_argument("--steps", type=int, default=200)
    run(parser.parse_args())
