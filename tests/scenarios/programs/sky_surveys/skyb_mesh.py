"""N-body particle mesh on 4 ranks: slabs along one axis, FFT partners in pairs, tracers on ranks that host clusters."""
import argparse
import logging

import torch
import torch.distributed as dist

log = logging.getLogger("mesh")
GRID = 48


class Layout:
    """Process groups of the decomposition."""

    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.rows = [[0, 1], [2, 3]]
        self.row = None
        for members in self.rows:
            group = dist.new_group(members)
            if rank in members:
                self.row = group
        self.tracers = None

    def enable_tracers(self, clusters):
        """Cluster finding needs its own communicator on the ranks that have any."""
        hosts = [r for r in range(self.world) if clusters[r] > 0]
        if self.rank in hosts:
            self.tracers = dist.new_group(hosts)
        return hosts


class Slab:
    def __init__(self, rank):
        self.g = torch.Generator().manual_seed(rank)
        self.density = torch.rand(GRID // 4, GRID, GRID, generator=self.g) + 0.5
        self.rank = rank

    def step(self, row, dt=0.02):
        halo = self.density[-1].clone()
        dist.all_reduce(halo, group=row)
        k = torch.fft.fftn(self.density - self.density.mean())
        potential = torch.fft.ifftn(k / (1 + torch.arange(GRID).float())).real
        self.density = (self.density + dt * (potential.roll(1, 1) - 2 * potential + potential.roll(-1, 1))).clamp_min(0)
        self.density[-1] = 0.9 * self.density[-1] + 0.05 * halo

    def clusters(self, threshold):
        return int((self.density > threshold).sum())


class Analysis:
    """Power spectrum over all slabs, in a group of its own so that it does not disturb the run."""

    def __init__(self, world):
        self.group = dist.new_group(list(range(world)))

    def spectrum(self, slab):
        power = torch.fft.rfft(slab.density.flatten(0, 1), dim=1).abs().square().mean(0)
        dist.all_reduce(power, group=self.group)
        return power


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--cluster-threshold", type=float, default=1.5)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    layout, slab = Layout(rank, world), Slab(rank)
    if rank == 2:
        slab.density = slab.density * 0.5 + 0.5  # a void crosses this slab
    analysis = None
    for step in range(1, args.steps + 1):
        slab.step(layout.row)
        if step % 50 == 0 and rank == 0:
            log.info("step %d: mean density %.4f", step, slab.density.mean().item())
        if step == 200:
            counts = [None] * world
            dist.all_gather_object(counts, slab.clusters(args.cluster_threshold))
            hosts = layout.enable_tracers(counts)
            log.info("rank %d: clusters on %s", rank, hosts)
        if step == 400:
            analysis = Analysis(world)
        if analysis and step % 100 == 0:
            analysis.spectrum(slab)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
