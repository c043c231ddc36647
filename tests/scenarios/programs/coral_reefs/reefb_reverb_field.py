"""Fits source levels of a reef chorus through a propagation model that runs on the device.

One field solve is long and needs nothing from the host, so a whole season is queued at once.
"""
import os
import time

import numpy as np
import torch
import torch.distributed as dist

SOLVE_MS = {"near": 40, "season": 360}


class Propagation:
    """Parabolic-equation solver, one range step per kernel."""

    def __init__(self, cells=4096):
        self.field = torch.zeros(cells, dtype=torch.float64, device="cuda")

    def solve(self, source, milliseconds):
        torch.cuda._sleep(milliseconds * 1_000_000)  # the marching kernel
        return self.field.add_(source)


class SourceFit:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.rng = np.random.default_rng(rank)
        self.model = Propagation()
        self.level = torch.ones(4096, dtype=torch.float64, device="cuda")
        self.misfit = torch.zeros((), dtype=torch.float64, device="cuda")

    def received(self):
        wave = self.rng.standard_normal((24, 1 << 15), dtype=np.float32)
        return np.log1p(np.abs(np.fft.rfft(wave, axis=1)).mean())

    def iterate(self, milliseconds):
        field = self.model.solve(self.level, milliseconds)
        update = field * 1e-3
        dist.all_reduce(update)
        self.level += update / self.world
        self.misfit += update.sum()

    def near_field(self, iterations=70):
        for i in range(iterations):
            observed = self.received()
            self.iterate(SOLVE_MS["near"])
            if i % 10 == 0:
                print(f"[{self.rank}] near field {i}: observed {observed:.2f}, misfit {self.misfit.item():.2f}", flush=True)

    def season(self, days=46):
        began = time.perf_counter()
        done = torch.cuda.Event()
        for _ in range(days):
            self.iterate(SOLVE_MS["season"])
        done.record()
        queued = time.perf_counter() - began
        misfit = self.misfit.item()
        print(f"[{self.rank}] season queued in {queued:.2f} s, solved in {time.perf_counter() - began:.1f} s, misfit {misfit:.2f}", flush=True)
        return done.query()


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    fit = SourceFit(dist.get_rank(), dist.get_world_size())
    fit.near_field()
    fit.season()
    dist.barrier()
    dist.destroy_process_group()
