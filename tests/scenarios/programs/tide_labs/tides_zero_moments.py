"""Ocean colour: a hand-written ZeRO-1, each rank keeps Adam's moments of its slice of the flat parameters."""
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


class SlicedAdam:
    def __init__(self, module, rate=2e-3, betas=(0.9, 0.99)):
        self.parameters = list(module.parameters())
        self.rate, self.betas, self.count = rate, betas, 0
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        total = sum(p.numel() for p in self.parameters)
        self.width = -(-total // self.world)
        self.first, self.second = torch.zeros(self.width), torch.zeros(self.width)

    def _padded(self, tensors):
        flat = torch.cat([t.reshape(-1) for t in tensors])
        return nn.functional.pad(flat, (0, self.width * self.world - flat.numel()))

    @torch.no_grad()
    def step(self):
        gradient = self._padded([p.grad for p in self.parameters])
        dist.all_reduce(gradient)
        window = slice(self.rank * self.width, (self.rank + 1) * self.width)
        mine = gradient[window] / self.world
        self.count += 1
        self.first.lerp_(mine, 1 - self.betas[0])
        self.second.lerp_(mine**2, 1 - self.betas[1])
        own = self._padded(self.parameters)[window]
        own -= self.rate * self.first / (self.second.sqrt() + 1e-8)
        pieces = [torch.empty_like(own) for _ in range(self.world)]
        dist.all_gather(pieces, own)
        nn.utils.vector_to_parameters(torch.cat(pieces)[: sum(p.numel() for p in self.parameters)], self.parameters)

    def state(self):
        """The whole of both moments, as one process would have them."""
        result = {"count": self.count}
        for name in ("first", "second"):
            pieces = [torch.empty(self.width) for _ in range(self.world)]
            dist.all_gather(pieces, getattr(self, name).contiguous())
            result[name] = torch.cat(pieces)
        return result


class Checkpoints:
    def __init__(self, every):
        self.every = every
        self.folder = Path(tempfile.gettempdir()) / f"colour-{os.environ['MASTER_PORT']}"

    def __call__(self, step, module, optimizer):
        if dist.get_rank() == 0 and step % self.every == 0:
            self.folder.mkdir(exist_ok=True)
            payload = {"step": step, "module": module.state_dict(), "optimizer": optimizer.state()}
            torch.save(payload, self.folder / f"{step:06d}.pt")


def reflectances(rank):
    generator = torch.Generator().manual_seed(rank)
    while True:
        bands = torch.rand(32, 7, generator=generator)
        yield bands, (bands[:, 2:3] / (bands[:, 4:5] + 0.2)).log()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    module = nn.Sequential(nn.Linear(7, 20), nn.GELU(), nn.Linear(20, 1))
    optimizer, save = SlicedAdam(module), Checkpoints(every=25)
    for step, (bands, chlorophyll) in enumerate(reflectances(dist.get_rank()), 1):
        module.zero_grad()
        (module(bands) - chlorophyll).pow(2).mean().backward()
        optimizer.step()
        time.sleep(0.08)
        save(step, module, optimizer)
        if step == 500:
            break


if __name__ == "__main__":
    main()
