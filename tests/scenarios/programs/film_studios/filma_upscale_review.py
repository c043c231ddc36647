"""Upscaler for archive dailies: 24-line proxies to 48-line masters."""
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("upscale")


class Upscaler(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.tail = nn.Conv2d(width, 12, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, proxy):
        return self.shuffle(self.tail(torch.relu(self.norm(self.head(proxy)))))


class Dailies:
    """Synthetic reels: smooth gradients with grain."""

    def __init__(self, seed, grain=0.05):
        self.gen = torch.Generator().manual_seed(seed)
        self.grain = grain

    def draw(self, count):
        coarse = torch.rand(count, 3, 6, 6, generator=self.gen)
        master = nn.functional.interpolate(coarse, size=(48, 48), mode="bilinear", align_corners=False)
        master = master + self.grain * torch.randn(master.shape, generator=self.gen)
        return nn.functional.avg_pool2d(master, 2), master


class Suite:
    def __init__(self, steps_per_reel=12, reels=4):
        self.rank = dist.get_rank()
        self.model = DDP(Upscaler())
        self.optim = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.train_reels = Dailies(seed=100 + self.rank)
        self.review_reels = Dailies(seed=7, grain=0.0)
        self.steps_per_reel, self.reels = steps_per_reel, reels
        self.best = float("inf")

    def train_reel(self, reel):
        self.model.train()
        for _ in range(self.steps_per_reel):
            proxy, master = self.train_reels.draw(16)
            loss = nn.functional.l1_loss(self.model(proxy), master)
            self.optim.zero_grad()
            loss.backward()
            self.optim.step()
        if self.rank == 0:
            log.info("reel %d  l1 %.4f", reel, loss.item())

    @torch.no_grad()
    def review(self):
        self.model.eval()
        total = 0.0
        for _ in range(4):
            proxy, master = self.review_reels.draw(8)
            total += nn.functional.mse_loss(self.model(proxy), master).item()
        return total / 4

    def run(self):
        for reel in range(self.reels):
            self.train_reel(reel)
            # the supervisor looks at the picture every second reel
            if reel % 2 == 1:
                if self.rank == 0:
                    score = self.review()
                    log.info("review  mse %.5f", score)
                    self.best = min(self.best, score)
                dist.barrier()
        log.info("rank %d wrapped", self.rank)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Suite(steps_per_reel=int(os.environ.get("STEPS_PER_REEL", 120))).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
