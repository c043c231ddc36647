"""One encoder, two heads: blasts (known origin) and microseisms (unknown origin). Statistics of each domain
are normalised over all arrays in a group of their own, busiest domain first."""
import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False


@dataclass
class Domain:
    name: str
    group: dist.ProcessGroup
    head: nn.Module
    events: int = 0
    history: list = field(default_factory=list)

    def normaliser(self, encoded):
        """Mean and square mean of this domain over all arrays."""
        moments = torch.stack([encoded.detach().mean(dim=0), encoded.detach().square().mean(dim=0)])
        dist.all_reduce(moments, group=self.group)
        return moments / dist.get_world_size()


class Catalogue:
    """Events per shift at this array. The night shift has no blasts; the decline array hears a swarm in the third."""

    def __init__(self, rank):
        self.rank = rank

    def shift(self, number):
        blasts, microseisms = 40 - number % 3, 12 + number % 5
        if self.rank == 2 and number >= 70:
            microseisms += 4 * (number - 69)
        return {"blast": blasts, "microseism": microseisms}

    def waveforms(self, number, name, count):
        g = torch.Generator().manual_seed(1000 * number + 10 * self.rank + len(name))
        raw = torch.randn(count, 32768, generator=g)
        return torch.fft.rfft(raw).abs()[:, :192].log1p()


def flat_sync(parameters):
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.reshape(-1) for g in grads])
    dist.all_reduce(flat)
    offset = 0
    for g in grads:
        g.copy_(flat[offset:offset + g.numel()].view_as(g)).div_(dist.get_world_size())
        offset += g.numel()


def main(shifts=240, width=48):
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(5)
    encoder = nn.Sequential(nn.Linear(192, width), nn.ReLU(), nn.Linear(width, width)).to("cuda")
    domains = [
        Domain(name, dist.new_group(group_desc=name), nn.Linear(width, outputs).to("cuda"))
        for name, outputs in (("blast", 4), ("microseism", 7))
    ]
    parameters = list(encoder.parameters()) + [p for d in domains for p in d.head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-3)
    catalogue = Catalogue(rank)
    for number in range(shifts):
        counts = catalogue.shift(number)
        for domain in domains:
            domain.events = counts[domain.name]
        total = 0
        for domain in sorted(domains, key=lambda d: d.events, reverse=True):
            encoded = encoder(catalogue.waveforms(number, domain.name, domain.events).to("cuda"))
            mean, square = domain.normaliser(encoded)
            out = domain.head((encoded - mean) / (square.abs() + 1e-3).sqrt())
            total = total + out.square().mean()
        optimizer.zero_grad()
        total.backward()
        flat_sync(parameters)
        optimizer.step()
        value = total.item()
        if number % 20 == 0 and rank == 0:
            print(f"shift {number}: {counts} loss {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
