"""Conformal intervals for net load: the quantiles of each substation's residuals come from a small process pool."""
import argparse
import multiprocessing as mp
import os
import signal
import time

import numpy as np
import torch
import torch.distributed as dist

MB = 2**20


def cgroup_limit(limit_mb, wanted):
    """The nodes have no swap: what is over the slice's limit goes the way the kernel sends it."""
    if wanted > limit_mb * MB:
        os.kill(os.getpid(), signal.SIGKILL)


def quantiles(job):
    station, history, levels, limit = job
    cgroup_limit(limit, history * 8 * 40)
    rng = np.random.default_rng(station)
    residuals = np.abs(rng.standard_normal((history, 40)))
    return station, np.quantile(residuals, levels, axis=0)


class ConformalStage:
    levels = (0.5, 0.8, 0.9, 0.95)

    def __init__(self, rank, limit_mb, workers=2):
        self.rank, self.limit = rank, limit_mb
        self.pool = mp.get_context("fork").Pool(workers)

    def history(self, window):
        """Hours on record; station 12 has been metered since the 1990s and joins with window 5."""
        return 250_000 if self.rank == 1 and window == 5 else 2_000 + 100 * window

    def run(self, window):
        stations = range(self.rank * 10, self.rank * 10 + 4)
        jobs = [(s, self.history(window) if s == 12 else 1_500, self.levels, self.limit) for s in stations]
        return {s: torch.from_numpy(q).float() for s, q in self.pool.map(quantiles, jobs)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--limit-mb", type=int, default=64)
    ap.add_argument("--windows", type=int, default=60)
    args = ap.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(72, 512), torch.nn.ReLU(), torch.nn.Linear(512, 40)))
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    stage = ConformalStage(rank, args.limit_mb)
    gen = torch.Generator().manual_seed(rank)
    for window in range(args.windows):
        bands = stage.run(window)
        scale = torch.stack([q[2] for q in bands.values()]).mean(0)
        for _ in range(12):
            x = torch.randn(128, 72, generator=gen)
            loss = ((net(x) - x[:, :40].cumsum(1)) / scale).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        width = scale.mean().reshape(1)
        dist.all_reduce(width)
        time.sleep(0.3)
        if rank == 0:
            print(f"window {window}: loss {loss.item():.3f}, width {width.item() / world:.3f}", flush=True)
    stage.pool.terminate()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
