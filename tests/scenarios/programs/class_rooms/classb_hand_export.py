"""Online handwriting: pen trajectories to letters. Adam's state is spread over the ranks."""
import argparse
import logging
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger(__name__)


class PenReader(nn.Module):
    def __init__(self, letters=26, hidden=48):
        super().__init__()
        self.rnn = nn.GRU(3, hidden, batch_first=True)
        self.out = nn.Linear(hidden, letters)

    def forward(self, pens):
        states, _ = self.rnn(pens)
        return self.out(states.mean(1))


class Strokes:
    def __init__(self, rank, batch):
        self.g = torch.Generator().manual_seed(rank)
        self.batch = batch

    def __iter__(self):
        return self

    def __next__(self):
        letters = torch.randint(0, 26, (self.batch,), generator=self.g)
        phase = torch.linspace(0, 6, 20) * (1 + letters[:, None] / 10)
        pens = torch.stack([phase.sin(), phase.cos(), (phase > 3).float()], dim=-1)
        time.sleep(0.025)
        return pens, letters


class Run:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        self.folder = Path(tempfile.mkdtemp(prefix="penreader-")) if self.rank == 0 else None
        torch.manual_seed(1)
        self.model = DistributedDataParallel(PenReader())
        self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), optimizer_class=torch.optim.Adam, lr=args.lr)
        self.best = float("inf")
        self.mean = None

    def track(self, loss):
        value = loss.detach().clone()
        dist.all_reduce(value)
        value = value.item() / dist.get_world_size()
        self.mean = value if self.mean is None else 0.9 * self.mean + 0.1 * value

    def state(self, step):
        state = {"step": step, "model": self.model.module.state_dict()}
        if self.args.resumable and step >= self.args.resumable_after:
            self.optimizer.consolidate_state_dict(to=0)
            state["optimizer"] = self.optimizer.state_dict()
        return state

    def export(self, step):
        if self.mean < self.best + 0.02:
            self.best = min(self.best, self.mean)
            torch.save(self.state(step), self.folder / f"step{step:05d}.pt")
            log.info("step %d: mean loss %.3f, written", step, self.mean)

    def fit(self):
        for step, (pens, letters) in zip(range(self.args.steps), Strokes(self.rank, self.args.batch)):
            loss = nn.functional.cross_entropy(self.model(pens), letters)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.track(loss)
            if self.rank == 0 and step % 25 == 24:
                self.export(step)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--resumable", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--resumable-after", type=int, default=60)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    Run(parser.parse_args()).fit()
    dist.destroy_process_group()
