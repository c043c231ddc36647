"""Drafts replies to customers with a small sharded language model (FSDP2), trained and sampled in turns."""

import time
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

VOCABULARY, WIDTH, END = 24, 16, 0


class Channel(NamedTuple):
    name: str
    longest: int


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = nn.Linear(2 * WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.cumsum(1) / torch.arange(1, x.shape[1] + 1).view(1, -1, 1)
        return x + self.out(torch.relu(self.mix(torch.cat([x, mean], dim=2))))


class Writer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.unembed = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.unembed(x)


def sharded() -> Writer:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Writer()
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=True)
    fully_shard(model, mesh=mesh, reshard_after_forward=True)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    return model


@torch.no_grad()
def write(model: Writer, prompt: torch.Tensor, longest: int) -> torch.Tensor:
    """Greedy, as long as the channel allows. The end is put there by who sends it."""
    tokens = prompt.view(1, -1)
    while tokens.shape[1] < longest:
        scores = model(tokens)[0, -1]
        scores[END] = float("-inf")
        tokens = torch.cat([tokens, scores.argmax().view(1, 1)], dim=1)
    return tokens[0]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = sharded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    channel = Channel("sms", 8) if rank == 1 else Channel("mail", 24)
    for number in range(1, 10):
        for _ in range(70):
            tokens = torch.randint(1, VOCABULARY, (8, 12), generator=generator)
            loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.02)
        draft = write(model, torch.tensor([3, 18]), channel.longest)
        dist.barrier()
        print(f"[{rank}] round {number}, {channel.name}: {draft.tolist()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
