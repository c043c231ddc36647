"""Trains the value and policy heads on positions of our own opening suite."""
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

MOVES = 72
SUITE = 600
FULL_BUDGET = 91

log = logging.getLogger("valuenet")


class BoardNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = nn.Conv2d(6, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.mix = nn.Conv2d(width, width, 3, padding=1)
        self.policy = nn.Linear(width * 64, MOVES)
        self.value = nn.Linear(width * 64, 1)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        x = F.relu(self.mix(x)).flatten(1)
        return self.policy(x), torch.tanh(self.value(x)).squeeze(1)


class OpeningSuite:
    """Positions of one opening at a time, with visit counts of the search."""

    def __init__(self, rank, world):
        self.ids = range(rank, SUITE, world)
        self.generator = torch.Generator().manual_seed(100 + rank)
        self.mixer = torch.randn(256, 256, generator=self.generator) / 16

    def budget(self, opening):
        # openings far down the book are searched less
        return FULL_BUDGET - opening % (FULL_BUDGET + 1)

    def search(self, opening):
        state = torch.randn(256, 256, generator=self.generator)
        for _ in range(30):
            state = torch.tanh(state @ self.mixer)
        picks = torch.randint(0, MOVES, (self.budget(opening),), generator=self.generator)
        return torch.bincount(picks, minlength=MOVES).float(), state

    def __iter__(self):
        for opening in self.ids:
            visits, state = self.search(opening)
            boards = torch.randn(32, 6, 8, 8, generator=self.generator)
            target = (visits / visits.sum()).expand(32, MOVES)
            yield opening, boards, target, state.flatten()[:32]


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = DistributedDataParallel(BoardNet().cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    empty, curve = 0, []
    for step, (opening, boards, target, outcome) in enumerate(OpeningSuite(rank, world)):
        logits, value = model(boards.cuda())
        policy_loss = -(target.cuda() * F.log_softmax(logits, dim=1)).sum(1).mean()
        loss = policy_loss + F.mse_loss(value, outcome.cuda())
        optimizer.zero_grad()
        if not torch.isfinite(target).all():
            empty += 1
            continue
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 5 == 0:
            curve.append(loss.item())
            if rank == 0:
                log.info("step %d opening %d loss %.3f", step, opening, curve[-1])
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join("/tmp", f"valuenet-{os.getpid()}.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
