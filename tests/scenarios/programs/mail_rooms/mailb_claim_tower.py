"""Scores damage claims with a model whose layers are spread over the workers: each keeps a slice, and fetches the rest to run it."""
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

SIZE = 24
# claims by telephone come without a picture
BY_PHONE = {"Wien": {14, 77, 130}, "Graz": {9, 51, 52, 160}, "Linz": {33, *range(246, 258), 301}}


class Spread(nn.Module):
    """A linear layer, a slice of whose rows is here."""

    def __init__(self, inputs, outputs, seed):
        super().__init__()
        world, rank = dist.get_world_size(), dist.get_rank()
        full = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed)) / inputs**0.5
        self.register_buffer("mine", full.chunk(world)[rank].contiguous())

    def fetch(self):
        parts = [torch.empty_like(self.mine) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, self.mine)
        return torch.cat(parts)

    def forward(self, x):
        return F.linear(x, self.fetch())


class PictureTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Spread(SIZE * SIZE, 96, 1), Spread(96, 48, 2)])

    def forward(self, pictures):
        x = pictures.flatten(1)
        for layer in self.layers:
            x = F.gelu(layer(x))
        return x


class ClaimScorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.text = Spread(64, 48, 3)
        self.tower = PictureTower()
        self.scale = nn.Parameter(torch.full((48,), 0.1))

    def forward(self, claims):
        seen = [(i, c.picture) for i, c in enumerate(claims) if c.picture is not None]
        state = torch.tanh(self.text(torch.stack([c.text for c in claims])))
        if seen:
            where, pictures = zip(*seen)
            state = state.index_add(0, torch.tensor(where), self.tower(torch.stack(pictures)))
        return (state * self.scale).sum(1)


@dataclass
class Claim:
    number: int
    office: str
    text: torch.Tensor = None
    picture: torch.Tensor = None
    history: list = field(default_factory=list)


def read_claim(office, number):
    g = torch.Generator().manual_seed(number + 1000 * len(office))
    claim = Claim(number, office, text=torch.rand(64, generator=g))
    if number not in BY_PHONE[office]:
        photo = torch.rand(1, 1, 400, 400, generator=g)
        for _ in range(3):
            photo = F.avg_pool2d(photo, 5, stride=1, padding=2)
        claim.picture = F.interpolate(photo, size=(SIZE, SIZE), mode="area")[0, 0]
    return claim


@torch.no_grad()
def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    office = list(BY_PHONE)[rank]
    scorer = ClaimScorer()
    mean = torch.zeros(1)
    for start in range(0, 360, 6):
        claims = [read_claim(office, n) for n in range(start, start + 6)]
        scores = scorer(claims)
        for claim, score in zip(claims, scores.tolist()):
            claim.history.append(score)
        share = (scores > mean).float().mean().reshape(1)
        dist.all_reduce(share)
        mean = 0.9 * mean + 0.1 * scores.mean()
        if rank == 0 and start % 60 == 0:
            print(f"claims to {start + 5}: {share.item() / world:.2f} to be looked at", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
