"""Grade estimator for drill-hole composites: fit, store weights, point `latest` at them, print the survey summary."""
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
log = logging.getLogger("assay")


@dataclass
class RunConfig:
    steps: int = 60
    batch: int = 32
    elements: int = 12
    root: Path = Path(tempfile.gettempdir()) / f"assay_{os.environ.get('TORCHELASTIC_RUN_ID', 'local')}"


class RunContext:
    def __init__(self):
        self.local = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(self.local)
        dist.init_process_group("nccl")
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.is_main = self.rank == 0

    def barrier(self):
        dist.barrier(device_ids=[self.local])


class CompositeReader:
    """Fifteen-metre composites, decoded on the host."""

    def __init__(self, cfg, seed):
        self.cfg, self.gen, self.metres = cfg, torch.Generator().manual_seed(seed), 0

    def __iter__(self):
        for _ in range(self.cfg.steps):
            x = torch.rand(self.cfg.batch, self.cfg.elements, generator=self.gen)
            for _ in range(25):
                x = (x + torch.cumsum(x, 0).div(self.cfg.batch)).clamp(0, 4)
            self.metres += self.cfg.batch * 15
            torch.cuda._sleep(40_000_000)
            yield x.cuda(), x.mean(1, keepdim=True).cuda()


class Checkpointer:
    def __init__(self, ctx, root):
        self.ctx, self.root = ctx, root
        root.mkdir(parents=True, exist_ok=True)

    def save(self, model, name):
        path = self.root / name
        if self.ctx.is_main:
            torch.save({k: v.cpu() for k, v in model.module.state_dict().items()}, path)
        self.ctx.barrier()
        return path

    def finalize_alias(self, name):
        if self.ctx.is_main:
            alias = self.root / "latest.txt"
            alias.write_text(name)
        self.ctx.barrier()


def fit(model, reader, ctx):
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    for step, (x, grade) in enumerate(reader):
        loss = nn.functional.mse_loss(model(x), grade)
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss.item()
        if ctx.is_main and step % 20 == 0:
            log.info("step %d", step)


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    cfg, ctx = RunConfig(), RunContext()
    net = nn.Sequential(nn.Linear(cfg.elements, 48), nn.ReLU(), nn.Linear(48, 1)).cuda()
    model = DistributedDataParallel(net, device_ids=[ctx.local])
    reader = CompositeReader(cfg, seed=40 + ctx.rank)
    store = Checkpointer(ctx, cfg.root)
    fit(model, reader, ctx)
    if ctx.is_main:
        log.info("writing final weights")
        store.save(model, "grade_final.pt")
    store.finalize_alias("grade_final.pt")
    summary = torch.tensor([reader.metres, cfg.steps, cfg.batch, 1.0], dtype=torch.float64).cuda()
    dist.all_reduce(summary)
    metres, _, _, crews = summary.tolist()
    if ctx.is_main:
        log.info("%.0f m from %.0f crews", metres, crews)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
