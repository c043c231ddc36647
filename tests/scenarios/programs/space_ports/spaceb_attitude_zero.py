"""Attitude filter (quaternion increments from gyro windows); optimizer state is sharded with ZeroRedundancyOptimizer."""
import argparse
import logging
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

LOG = logging.getLogger("attitude")


class GyroNet(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.rnn = nn.GRU(3, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 4)

    def forward(self, omega):
        seq, _ = self.rnn(omega)
        return nn.functional.normalize(self.out(seq[:, -1]), dim=-1)


def gyro_window(gen, n=16, t=20):
    omega = torch.randn(n, t, 3, generator=gen) * 0.02
    angle = omega.sum(1)
    quat = torch.cat([torch.ones(n, 1), angle / 2], dim=1)
    return omega, nn.functional.normalize(quat, dim=-1)


class Archive:
    """Keeps the last checkpoints of a run in one folder."""

    def __init__(self, folder, keep):
        self.folder, self.keep = pathlib.Path(folder), keep
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, step, model, optimizer):
        optimizer.consolidate_state_dict(to=0)
        path = self.folder / f"step{step:05d}.pt"
        torch.save({"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)
        for old in sorted(self.folder.glob("step*.pt"))[:-self.keep]:
            old.unlink()
        LOG.info("wrote %s (%.0f kB)", path.name, path.stat().st_size / 1024)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--save-every", type=int, default=60)
    p.add_argument("--keep", type=int, default=2)
    return p.parse_args()


def main():
    args = parse()
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    model = DDP(GyroNet())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-3)
    archive = Archive(tempfile.mkdtemp(prefix="attitude-"), args.keep) if rank == 0 else None
    gen = torch.Generator().manual_seed(rank)
    for step in range(1, args.steps + 1):
        omega, quat = gyro_window(gen)
        error = 1 - (model(omega) * quat).sum(-1).abs().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        time.sleep(0.03)
        if step % 20 == 0 and rank == 0:
            LOG.info("step %d error %.4f", step, error.item())
        if archive is not None and step % args.save_every == 0:
            archive.write(step, model, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
