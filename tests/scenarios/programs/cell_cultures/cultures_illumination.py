"""Self-supervised pretraining on microscopy tiles, with an illumination correction that follows the lamp."""

import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


@dataclass
class Illumination:
    """Running brightness of the tiles; renewed when the lamp has drifted."""

    momentum: float = 0.9
    tolerance: float = 4.0
    level: float = 0.0
    spread: float = 1.0
    seen: int = 0
    history: list = field(default_factory=list)

    def observe(self, tiles):
        mean, deviation = tiles.mean().item(), tiles.std().item()
        self.seen += 1
        if self.seen > 5 and abs(mean - self.level) > self.tolerance * self.spread / tiles.shape[0] ** 0.5:
            self.renew(mean, deviation)
        self.level = self.momentum * self.level + (1 - self.momentum) * mean
        self.spread = self.momentum * self.spread + (1 - self.momentum) * deviation

    def renew(self, mean, deviation):
        mine = torch.tensor([mean, deviation, float(self.seen)])
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, mine)
        table = torch.stack(everyone)
        self.level, self.spread = table[:, 0].mean().item(), table[:, 1].mean().item()
        self.history.append((self.seen, self.level))

    def correct(self, tiles):
        return (tiles - self.level) / max(self.spread, 1e-3)


def tiles_of(rank, count, size=16):
    """Tiles of one microscope. The one at station 1 had its bulb replaced in the course of the day."""
    generator = torch.Generator().manual_seed(rank)
    for index in range(count):
        time.sleep(0.05)
        tiles = 0.2 * torch.randn(size, 64, generator=generator)
        yield tiles + (2.5 if rank == 1 and index >= 40 else 0.0)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 24), nn.Tanh(), nn.Linear(24, 64)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    lamp = Illumination()
    for step, tiles in enumerate(tiles_of(rank, 400)):
        lamp.observe(tiles)
        tiles = lamp.correct(tiles)
        loss = nn.functional.mse_loss(model(tiles + 0.1 * torch.randn_like(tiles)), tiles)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
