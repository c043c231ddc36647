"""Sampled images are collected from the workers. The main rank has samples of its own and returns before the collective."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import FileStore


class Sampler:
    """Collects samples from all ranks for a picture."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self.samples: list[torch.Tensor] = []

    def collect(self, image: torch.Tensor, step: int) -> list[torch.Tensor]:
        """Samples for the picture of a step."""
        self.samples.append(image)
        if self.rank == 0 and len(self.samples) >= 4:
            return self.samples[-4:]
        everybodys = [torch.zeros_like(image) for _ in range(self.world)]
        dist.all_gather(everybodys, image)
        return everybodys


def work(rank: int, world: int, path: str) -> None:
    """Twelve steps of a generator whose gradients are averaged by hand."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=FileStore(path, world), rank=rank, world_size=world)
    torch.manual_seed(rank)
    generator = torch.nn.Linear(4, 64)
    optimizer = torch.optim.SGD(generator.parameters(), 0.01)
    sampler = Sampler(rank, world)
    for step in range(1, 13):
        image = generator(torch.randn(4))
        optimizer.zero_grad()
        (image.mean() - 0.5).square().backward()
        for parameter in generator.parameters():
            dist.reduce(parameter.grad, dst=0)
            dist.broadcast(parameter.grad, src=0)
        optimizer.step()
        if step % 2 == 0:
            picture = sampler.collect(image.detach(), step)
            print(f"[{rank}] step {step}: {len(picture)} samples\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(4, folder + "/store"), nprocs=4)
