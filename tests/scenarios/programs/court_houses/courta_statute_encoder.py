"""Encoder of statutes: the optimizer's state is spread over the processes to save memory.

Weights are written every 20 steps ("latest"); the whole run, to go on from, at the end of a term.
"""

import dataclasses
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclasses.dataclass
class Settings:
    terms: int = 3
    steps_per_term: int = 40
    latest_every: int = 20
    width: int = 32
    lr: float = 2e-3


class RunFolder:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.primary = dist.get_rank() == 0

    def latest(self, model):
        if self.primary:
            torch.save(model.module.state_dict(), self.root / "latest.pt")

    def resume_point(self, term, model, optimizer):
        if self.primary:
            optimizer.consolidate_state_dict(to=0)
            state = {"term": term, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, self.root / f"term-{term}.pt")
        dist.barrier()


def sections(step, rank, width):
    generator = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(24, width, generator=generator)
    return x, x.roll(1, dims=1)


def run(settings, folder):
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(settings.width, 48), nn.GELU(), nn.Linear(48, settings.width)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=settings.lr)
    for term in range(settings.terms):
        for step in range(settings.steps_per_term):
            x, y = sections(term * settings.steps_per_term + step, rank, settings.width)
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
            if step % settings.latest_every == settings.latest_every - 1:
                folder.latest(model)
        if rank == 0:
            print(f"term {term}: reconstruction error {loss.item():.4f}", flush=True)
        folder.resume_point(term, model, optimizer)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory(prefix="statutes-") as root:
        run(Settings(), RunFolder(root))
    dist.destroy_process_group()
