"""Signal timing on a corridor: each process simulates a stretch of road and hands its edge cells to its neighbours."""
import logging
import os

import torch
import torch.distributed as dist

log = logging.getLogger("corridor")

# detectors: vehicles on the stretch at 06:00, and the change per minute
DETECTORS = [(900, -2), (400, 5), (700, -5), (1200, 1)]
EDGE = 4096


def load(stretch, minute):
    start, change = DETECTORS[stretch]
    return start + change * minute


class Stretch:
    """Cell transmission model with several lanes; densities are kept on the host, edges travel between devices."""

    def __init__(self, rank, world, device):
        self.rank, self.world, self.device = rank, world, device
        self.rng = torch.Generator().manual_seed(rank)
        self.density = torch.rand(8, 2 * EDGE, generator=self.rng) * 0.3
        self.green = 30.0

    def flow(self, substeps=240):
        for _ in range(substeps):
            sending = torch.clamp(self.density * 1.2, max=0.25)
            receiving = torch.clamp((1 - self.density) * 0.4, max=0.25)
            moved = torch.minimum(sending, receiving.roll(-1, 1)) * min(self.green / 60, 1.0)
            self.density = self.density - moved + moved.roll(1, 1)

    def hand_over(self, neighbour, minute):
        """The busier stretch hands over first."""
        cells = self.density[0, -EDGE:] if neighbour > self.rank else self.density[0, :EDGE]
        out = cells.contiguous().to(self.device)
        back = torch.empty_like(out)
        if load(self.rank, minute) >= load(neighbour, minute):
            dist.send(out, dst=neighbour)
            dist.recv(back, src=neighbour)
        else:
            dist.recv(back, src=neighbour)
            dist.send(out, dst=neighbour)
        cells.copy_(back.cpu())

    def neighbours(self):
        return [n for n in (self.rank - 1, self.rank + 1) if 0 <= n < self.world]


class GreenSplit:
    def __init__(self, device):
        self.device = device

    def update(self, stretch, minute):
        waiting = torch.tensor([stretch.density.sum().item()], device=self.device)
        dist.all_reduce(waiting)
        total = waiting.item()
        share = stretch.density.sum().item() / max(total, 1e-6)
        stretch.green = 20 + 40 * share
        return total


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local)
    stretch = Stretch(dist.get_rank(), dist.get_world_size(), device)
    signals = GreenSplit(device)
    for minute in range(240):
        stretch.flow()
        for neighbour in stretch.neighbours():
            stretch.hand_over(neighbour, minute)
        total = signals.update(stretch, minute)
        if minute % 10 == 0 and stretch.rank == 0:
            log.info("%02d:%02d  %.1f vehicles per lane, green %.1f s", 6 + minute // 60, minute % 60, total, stretch.green)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
