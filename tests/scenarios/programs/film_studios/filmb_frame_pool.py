"""Restoration of faded colour: patches come from a pool of decoded frames with a byte budget."""
import random
import threading
import time
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FILMS = [
    {"title": "The Weir", "scenes": [(0, 30), (10, 34), (5, 28)]},
    {"title": "Harbour Lights", "scenes": [(0, 26), (0, 32), (40, 130)]},
]


class Frame:
    """A decoded frame; its bytes go back to the pool's ledger when nobody uses it any more."""

    def __init__(self, pool, number, pixels):
        self.pool, self.number, self.pixels = pool, number, pixels
        pool.used += pixels.numel()

    def patch(self, dice, size=12):
        y, x = dice.randrange(48 - size), dice.randrange(64 - size)
        return self.pixels[:, y : y + size, x : x + size]

    def __del__(self):
        self.pool.give_back(self.pixels.numel())


class FramePool:
    def __init__(self, budget):
        self.budget, self.used = budget, 0
        self.lock = threading.Lock()  # the proxy server's thread reads the ledger as well
        self.frames = OrderedDict()

    def give_back(self, size):
        with self.lock:
            self.used -= size

    def decode(self, number):
        time.sleep(0.01)
        g = torch.Generator().manual_seed(number)
        return torch.rand(3, 48, 64, generator=g)

    def get(self, number):
        with self.lock:
            if number not in self.frames:
                while self.used >= self.budget:
                    self.frames.popitem(last=False)
                self.frames[number] = Frame(self, number, self.decode(number))
            self.frames.move_to_end(number)
            return self.frames[number]


class Unfade(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1))

    def forward(self, faded):
        return faded + self.net(faded)


def batches(film, pool, per_scene=40):
    dice = random.Random(film["title"])
    for first, last in film["scenes"]:
        for _ in range(per_scene):
            numbers = [dice.randrange(first, last) for _ in range(4)]
            yield torch.stack([pool.get(n).patch(dice) for n in numbers])


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(2)
    film = FILMS[dist.get_rank()]
    pool = FramePool(budget=60 * 3 * 48 * 64)
    model = DDP(Unfade())
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    for n, clean in enumerate(batches(film, pool)):
        time.sleep(0.02)
        faded = clean * torch.tensor([1.0, 0.7, 0.5]).view(1, 3, 1, 1)
        loss = (model(faded) - clean).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if n % 20 == 0:
            print(f"{film['title']}: patch set {n}, error {loss.item():.4f}, {len(pool.frames)} frames held", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
