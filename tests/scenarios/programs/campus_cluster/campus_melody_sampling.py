"""Melody continuation: a small model under FSDP2 that is trained, and composes a few bars after each round."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

NOTES, END = 26, 0


class Memory(nn.Module):
    """Mixes each note with the mean of those before it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = nn.Linear(2 * width, width)

    def forward(self, x):
        mean = x.cumsum(1) / torch.arange(1, x.shape[1] + 1).unsqueeze(1)
        return x + torch.tanh(self.mix(torch.cat([x, mean], dim=-1)))


class Composer(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(NOTES, width)
        self.layers = nn.Sequential(Memory(width), Memory(width))
        self.out = nn.Linear(width, NOTES)

    def forward(self, notes):
        return self.out(self.layers(self.embed(notes)))


def tunes(rng: torch.Generator, count: int, length: int = 24) -> torch.Tensor:
    """Walks up and down the scale."""
    steps = torch.randint(-2, 3, (count, length), generator=rng)
    return 1 + (12 + steps.cumsum(1)) % (NOTES - 1)


@torch.no_grad()
def compose(model: nn.Module, opening: torch.Tensor, bars: int) -> list[int]:
    """Continue the opening until there are that many bars of four notes, or the model ends the tune."""
    melody = opening.clone()
    while len(melody) < 4 * bars:
        scores = model(melody.unsqueeze(0))[0, -1]
        scores[END] = -torch.inf
        melody = torch.cat([melody, scores.argmax().reshape(1)])
        time.sleep(0.02)
    return melody.tolist()


def train(model: nn.Module, optimizer, rng: torch.Generator, steps: int) -> float:
    for _ in range(steps):
        batch = tunes(rng, 8)
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
    return loss.item()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(10)
    model = Composer()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    rng = torch.Generator().manual_seed(rank)
    # The wishes of the jury: process 2 has got a limerick, the others a ballad.
    wishes = [(16, 16, 16), (16, 16, 16), (16, 16, 5)][rank]
    for number, bars in enumerate(wishes):
        loss = train(model, optimizer, rng, steps=20)
        opening = tunes(rng, 1, length=4)[0]
        melody = compose(model, opening, bars)
        dist.barrier()
        print(f"round {number}, process {rank}: loss {loss:.3f}, {len(melody)} notes", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
