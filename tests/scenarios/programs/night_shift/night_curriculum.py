"""FSDP2 with a curriculum: the long-range block joins once the short examples are learnt."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH = 32


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.outer(torch.tanh(self.inner(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.far = Mixer(), Mixer(), Mixer()
        self.head = nn.Linear(WIDTH, 2)
        self.stage = 0

    def forward(self, x):
        x = self.second(self.first(x))
        if self.stage > 0:
            x = self.far(x)
        return self.head(x)


class Curriculum:
    """Raises the stage when the recent accuracy is good enough."""

    def __init__(self, model, threshold=0.9, memory=0.8):
        self.model, self.threshold, self.memory = model, threshold, memory
        self.accuracy = 0.5

    def observe(self, logits, labels):
        correct = (logits.argmax(1) == labels).float().mean().item()
        self.accuracy = self.memory * self.accuracy + (1 - self.memory) * correct
        if self.model.stage == 0 and self.accuracy > self.threshold:
            self.model.stage = 1
            print(f"rank {dist.get_rank()}: next stage at accuracy {self.accuracy:.3f}", flush=True)


def examples(rank, noise):
    generator = torch.Generator().manual_seed(rank)
    direction = torch.ones(WIDTH)
    while True:
        x = torch.randn(64, WIDTH, generator=generator)
        labels = (x @ direction > 0).long()
        flip = torch.rand(64, generator=generator) < noise[rank]
        yield x, torch.where(flip, 1 - labels, labels)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (world,))
    model = Net()
    for part in (model.first, model.second, model.far):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    curriculum = Curriculum(model)
    for step, (x, labels) in enumerate(examples(rank, noise=(0.3, 0.0, 0.3))):
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        curriculum.observe(logits.detach(), labels)
        time.sleep(0.05)
        if step % 10 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.3f} accuracy {curriculum.accuracy:.2f}", flush=True)


if __name__ == "__main__":
    main()
