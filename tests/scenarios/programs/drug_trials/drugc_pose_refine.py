"""Refine an affinity head on docked poses; complexes are dealt out to the ranks like cards."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("refine")


@dataclass
class Settings:
    complexes: int = 126
    poses: int = 64
    atoms: int = 320
    max_clash: float = 0.85
    lr: float = 1e-3


ION_RADIUS = {"ZN": 1.39, "MG": 1.18, "CA": 1.31, "U": 1.86}
COFACTORS = {17: "ZN", 33: "MG", 58: "CA", 79: "U", 101: "ZN"}


class ComplexStore:
    """Poses of one complex: coordinates, a clash score for each pose, a measured pKd."""

    def __init__(self, settings: Settings):
        self.s = settings

    def __getitem__(self, index: int):
        g = torch.Generator().manual_seed(1000 + index)
        xyz = torch.randn(self.s.poses, self.s.atoms, 3, generator=g)
        clash = torch.rand(self.s.poses, generator=g) * 0.8
        ion = COFACTORS.get(index)
        if ion:
            # the ion's sphere takes room from every pose alike
            clash = clash + max(0.0, ION_RADIUS[ion] - 1.4) * 2
        return xyz, clash, torch.rand((), generator=g) * 6 + 4


def fingerprints(xyz: torch.Tensor) -> torch.Tensor:
    """Histogram of pairwise distances, per pose."""
    d = torch.cdist(xyz, xyz).flatten(1)
    return torch.stack([torch.histc(row, bins=64, min=0, max=8) for row in d]) / d.shape[1]


class AffinityHead(nn.Module):
    def __init__(self, width: int = 64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def run_pass(model, optimizer, store, settings, rank, world):
    used = 0
    for index in range(rank, settings.complexes, world):
        xyz, clash, pkd = store[index]
        keep = clash < settings.max_clash
        if not keep.any():
            continue
        x = fingerprints(xyz[keep])
        loss = nn.functional.huber_loss(model(x), pkd.expand(len(x)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        used += int(keep.sum())
        if index // world % 10 == 0:
            log.info("rank %d complex %d loss %.3f", rank, index, loss.item())
    return used


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    settings = Settings()
    model = DDP(AffinityHead())
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr)
    store = ComplexStore(settings)
    for number in range(3):
        used = run_pass(model, optimizer, store, settings, rank, world)
        dist.barrier()
        total = torch.tensor([float(used)])
        dist.all_reduce(total)
        if rank == 0:
            log.info("pass %d: %d poses", number, int(total))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
