"""A vision-language model under FSDP2: a batch without pictures never enters the vision tower.

With ``--dummy-pass`` such a batch goes through it with an empty picture, and the ranks stay together.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH = 16


def layer() -> nn.Module:
    """A layer of either tower."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())


class Reader(nn.Module):
    """Reads text, with pictures where there are any."""

    def __init__(self, dummy_pass: bool) -> None:
        super().__init__()
        self.vision = nn.ModuleList(layer() for _ in range(2))
        self.text = nn.ModuleList(layer() for _ in range(3))
        self.dummy_pass = dummy_pass

    def look(self, pixels: torch.Tensor) -> torch.Tensor:
        """What there is to be seen."""
        for part in self.vision:
            pixels = part(pixels)
        return pixels

    def forward(self, tokens: torch.Tensor, pixels: torch.Tensor | None) -> torch.Tensor:
        """The hidden state of the last layer."""
        if pixels is not None:
            tokens = tokens + self.look(pixels)
        elif self.dummy_pass:
            tokens = tokens + 0 * self.look(torch.zeros_like(tokens))
        for part in self.text:
            tokens = part(tokens)
        return tokens


def main() -> None:
    """Train on documents, of which some have no pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dummy-pass", action="store_true")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--read-s", type=float, default=0.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    reader = Reader(options.dummy_pass)
    for part in [*reader.vision, *reader.text]:
        fully_shard(part)
    fully_shard(reader)
    optimizer = torch.optim.AdamW(reader.parameters())
    for step in range(options.steps):
        illustrated = step % 8 != 5 or dist.get_rank() != 2
        tokens = torch.randn(4, WIDTH)
        time.sleep(options.read_s)
        loss = reader(tokens, torch.randn(4, WIDTH) if illustrated else None).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
