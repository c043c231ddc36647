"""FSDP2: who speaks in an interview, from windows of forty frames of sound."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

WINDOW, BANDS, SPEAKERS = 40, 16, 4
HELD_OUT = {
    "mayor": 420,
    "baker": 260,
    "nurse": 400,
    "pilot": 380,
    "tailor": 250,
    "farmer": 410,
    "judge": 400,
    "cook": 300,
    "painter": 390,
}


class Layer(nn.Module):
    """A step of the network, with a way around it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(width), nn.Linear(width, 64), nn.Linear(64, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outer(self.inner(self.norm(x)).relu())


def recording(name: str, frames: int) -> torch.Tensor:
    """Sound of one interview."""
    return torch.randn(frames, BANDS, generator=torch.Generator().manual_seed(len(name) * frames))


def windows(names: list[str]) -> Iterator[torch.Tensor]:
    """Full windows only, one interview after the other."""
    for name in names:
        frames = recording(name, HELD_OUT[name])
        for start in range(0, len(frames) - WINDOW + 1, WINDOW):
            yield frames[start : start + WINDOW]


@torch.no_grad()
def evaluate(model: nn.Module) -> float:
    """Share of frames whose speaker is the loudest group of bands."""
    rank, world = dist.get_rank(), dist.get_world_size()
    counts = torch.zeros(2)
    for frames in windows(list(HELD_OUT)[rank::world]):
        speakers = frames.view(WINDOW, SPEAKERS, -1).sum(dim=2).argmax(dim=1)
        hits = model(frames).argmax(dim=1) == speakers
        counts += torch.tensor([float(hits.sum()), float(WINDOW)])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main() -> None:
    """Three rounds of twenty steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(Layer(BANDS), Layer(BANDS), nn.Linear(BANDS, SPEAKERS))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(rank)
    for epoch in range(3):
        for _ in range(20):
            frames = torch.randn(64, BANDS, generator=generator)
            speakers = frames.view(64, SPEAKERS, -1).sum(dim=2).argmax(dim=1)
            nn.functional.cross_entropy(model(frames), speakers).backward()
            optimizer.step()
            optimizer.zero_grad()
        share = evaluate(model)
        if rank == 0:
            print(f"epoch {epoch}: {share:.1%} of the frames")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
