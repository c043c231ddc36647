"""Sound effect embedding with one expert per worker and kind of sound (interior, rain, traffic)."""
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Config:
    width: int = 24
    capacity: int = 32
    batch: int = 48
    reels: int = 4
    cues_per_reel: int = 25
    lr: float = 0.05


class Exchange(torch.autograd.Function):
    """Row blocks to and from the workers that have the experts."""

    @staticmethod
    def forward(ctx, rows):
        out = torch.empty_like(rows)
        dist.all_to_all_single(out, rows.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        back = torch.empty_like(grad)
        dist.all_to_all_single(back, grad.contiguous())
        return back


class SoundExperts(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg, self.world = cfg, dist.get_world_size()
        self.expert = nn.Sequential(nn.Linear(cfg.width, 48), nn.GELU(), nn.Linear(48, cfg.width))

    def apply_expert(self, rows, valid):
        if not valid.any():
            return torch.zeros(rows.shape)
        return self.expert(rows) * valid

    def forward(self, x, kind):
        cap, width = self.cfg.capacity, self.cfg.width
        places = [(kind == e).nonzero().flatten()[:cap] for e in range(self.world)]
        outgoing = torch.zeros(self.world * cap, width)
        filled = torch.zeros(self.world * cap, 1)
        slot = torch.cat([e * cap + torch.arange(len(p)) for e, p in enumerate(places)])
        where = torch.cat(places)
        outgoing = outgoing.index_copy(0, slot, x[where])
        filled[slot] = 1.0
        valid = torch.empty_like(filled)
        dist.all_to_all_single(valid, filled)
        done = Exchange.apply(self.apply_expert(Exchange.apply(outgoing), valid))
        return x.index_add(0, where, done[slot])


class Library:
    """Cues of the sound library; the last reels play indoors or on the road."""

    def __init__(self, cfg, rank):
        self.cfg, self.g = cfg, torch.Generator().manual_seed(30 + rank)

    def cue(self, reel):
        time.sleep(0.03)
        kinds = torch.tensor([0, 1, 2] if reel < 3 else [0, 2])
        kind = kinds[torch.randint(len(kinds), (self.cfg.batch,), generator=self.g)]
        return torch.randn(self.cfg.batch, 16, generator=self.g), kind


def share(module):
    for p in module.parameters():
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    cfg, rank = Config(), dist.get_rank()
    torch.manual_seed(8)
    embed, head = nn.Linear(16, cfg.width), nn.Linear(cfg.width, 16)
    experts = SoundExperts(cfg)
    optimiser = torch.optim.SGD([*embed.parameters(), *head.parameters(), *experts.parameters()], lr=cfg.lr)
    library = Library(cfg, rank)
    for reel in range(cfg.reels):
        for _ in range(cfg.cues_per_reel):
            sound, kind = library.cue(reel)
            loss = (head(experts(embed(sound), kind)) - sound).square().mean()
            optimiser.zero_grad()
            loss.backward()
            share(embed)
            share(head)
            optimiser.step()
        if rank == 0:
            print(f"reel {reel}: reconstruction {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
