"""Sales by channel: one model per channel, each with a process group, so that a channel can be moved to other machines."""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

CHANNELS = ("shop", "web")


@dataclass
class Channel:
    name: str
    group: dist.ProcessGroup
    model: nn.Module
    optimizer: torch.optim.Optimizer = field(init=False)
    waiting: int = 0

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def train(self, receipts: torch.Tensor) -> None:
        loss = (self.model(receipts).squeeze(-1) - receipts[:, :5].sum(dim=1)).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.synchronise()
        self.optimizer.step()
        self.waiting -= len(receipts)

    @torch.no_grad()
    def synchronise(self) -> None:
        """Averages the gradients of the channel, as one vector."""
        parameters = list(self.model.parameters())
        vector = nn.utils.parameters_to_vector([p.grad for p in parameters])
        dist.all_reduce(vector, group=self.group)
        vector /= dist.get_world_size()
        offset = 0
        for parameter in parameters:
            parameter.grad.copy_(vector[offset : offset + parameter.numel()].view_as(parameter))
            offset += parameter.numel()


class Country:
    """How many receipts of each channel have come in since the last tick, and what is on them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.generator = torch.Generator().manual_seed(300 + number)

    def incoming(self, tick: int) -> dict[str, int]:
        web = 64 + (40 if self.number == 2 and tick % 500 == 350 else 0)
        return {"shop": 80, "web": web}

    def receipts(self, size: int) -> torch.Tensor:
        return torch.randn(size, 20, generator=self.generator)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1))


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    channels = [Channel(name, dist.new_group(), network()) for name in CHANNELS]
    country = Country(dist.get_rank())
    for tick in range(30_000):
        for channel in channels:
            channel.waiting += country.incoming(tick)[channel.name]
        for channel in sorted(channels, key=lambda c: c.waiting, reverse=True):
            channel.train(country.receipts(channel.waiting))
        if tick % 100 == 0 and dist.get_rank() == 0:
            print(f"tick {tick}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
