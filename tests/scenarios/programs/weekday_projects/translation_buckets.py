"""Trains a translation model, sharded with fully_shard, on batches with a fixed number of tokens."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

MAX_TOKENS = 120


def sentences(rank: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(40 + rank)
    longest = 30 if rank < 2 else 22
    lengths = torch.randint(6, longest, (48,), generator=generator)
    return [torch.randint(80, (int(length),), generator=generator) for length in lengths]


def by_tokens(rows: list[torch.Tensor], limit: int):
    """Batches whose padded size stays below the limit, short sentences first."""
    batch: list[torch.Tensor] = []
    for row in sorted(rows, key=len):
        if batch and (len(batch) + 1) * len(row) > limit:
            yield torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)
            batch = []
        batch.append(row)
    if batch:
        yield torch.nn.utils.rnn.pad_sequence(batch, batch_first=True)


class Translator(torch.nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(80, width)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(2))
        self.out = torch.nn.Linear(width, 80)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(words)
        for layer in self.layers:
            hidden = hidden + torch.tanh(layer(hidden))
        return self.out(hidden)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Translator()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    rows = sentences(rank)
    for epoch in range(3):
        for words in by_tokens(rows, MAX_TOKENS):
            logits = model(words[:, :-1])
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
        dist.barrier()
        if rank == 0:
            print("finished epoch", epoch, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
