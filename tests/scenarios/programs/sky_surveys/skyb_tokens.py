"""Autoregressive light-curve generator (FSDP2): training on binned flux tokens, synthetic curves every few steps."""
from __future__ import annotations

import dataclasses

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard

BINS = 64
END = BINS
START = BINS + 1


@dataclasses.dataclass
class Settings:
    width: int = 64
    context: int = 24
    batch: int = 48
    sample_every: int = 50
    longest: int = 160


class CurveModel(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.embed = nn.Embedding(BINS + 2, s.width)
        self.mix = nn.Linear(s.context * s.width, 2 * s.width)
        self.out = nn.Linear(2 * s.width, BINS + 1)

    def forward(self, window):
        return self.out(F.relu(self.mix(self.embed(window).flatten(1))))


class Curves:
    """Supernovae in the survey's filters: faint ones fall under the detection limit after a few visits."""

    def __init__(self, band, s: Settings):
        self.s = s
        self.visits = {"g": 14, "r": 45, "i": 45}[band]
        self.generator = torch.Generator().manual_seed(ord(band))

    def windows(self):
        length = self.visits + 4
        t = torch.linspace(0, 3, length)
        peak = torch.rand(self.s.batch, 1, generator=self.generator) * 20 + 40
        flux = peak * torch.exp(-0.5 * (t - 0.4) ** 2) + torch.randn(self.s.batch, length, generator=self.generator)
        tokens = flux.round().clamp(0, BINS - 1).long()
        tokens[:, self.visits :] = END
        padded = F.pad(tokens, (self.s.context, 0), value=START)
        where = torch.randint(0, length, (self.s.batch,), generator=self.generator)
        index = where[:, None] + torch.arange(self.s.context)
        return padded.gather(1, index), tokens.gather(1, where[:, None]).squeeze(1)


@torch.no_grad()
def synthesise(model, s: Settings, visits):
    window = torch.full((4, s.context), START)
    curve = []
    while len(curve) < s.longest:
        token = model(window)[:, :END].argmax(1)
        if len(curve) >= visits:
            token = torch.full_like(token, END)
        curve.append(token)
        if (token == END).all():
            break
        window = torch.cat([window[:, 1:], token[:, None]], 1)
    return torch.stack(curve, 1)


def brightness(curve):
    total = curve[curve < END].float().mean().reshape(1)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def main():
    s = Settings()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(2)
    model = CurveModel(s)
    fully_shard(model.mix)
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    curves = Curves("rgi"[rank % 3], s)
    for step in range(1, 4000):
        window, target = curves.windows()
        loss = F.cross_entropy(model(window), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step % s.sample_every == 0 and step >= 100:
            mean = brightness(synthesise(model, s, curves.visits))
            if rank == 0:
                print(f"step {step} mean brightness {mean:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
