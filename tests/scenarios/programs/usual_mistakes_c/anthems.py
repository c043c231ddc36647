"""A letter model under FSDP2 continues anthems of different lengths; all go on until the last one is done."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

TEXT = "o land of hills and rivers wide, of fields and woods from side to side, to you we sing our song with pride; "
LETTERS = sorted(set(TEXT))
BEGINNINGS = ["o land", "of fields and woods from", "to you we sing"]
LENGTH, WIDTH = 48, 36


class Singer(nn.Module):
    """The next letter."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS), WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, len(LETTERS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits at every place."""
        x = self.embed(tokens).cumsum(dim=-2) * 0.2
        for layer in self.layers:
            x = x + layer(x).relu()
        return self.head(x)


def encode(text: str) -> torch.Tensor:
    """Numbers of the letters."""
    return torch.tensor([LETTERS.index(letter) for letter in text])


@torch.no_grad()
def generate(model: Singer, beginning: str) -> torch.Tensor:
    """Letter by letter; a rank that is done goes on with the others, and drops what it gets."""
    tokens = encode(beginning)
    while True:
        open_lines = torch.tensor(float(len(tokens) < LENGTH))
        dist.all_reduce(open_lines)
        if open_lines.item() == 0:
            return tokens
        letter = model(tokens)[-1].argmax().view(1)
        if len(tokens) < LENGTH:
            tokens = torch.cat([tokens, letter])


def main() -> None:
    """Ten epochs."""
    mesh = init_device_mesh("cpu", (3,))
    rank, world = mesh.get_rank(), mesh.size()
    torch.manual_seed(0)
    model = Singer()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tokens = encode(TEXT * 2)
    for epoch in range(10):
        for step in range(20):
            start = (5 * step + 31 * rank) % len(TEXT)
            window = tokens[start : start + 33]
            loss = nn.functional.cross_entropy(model(window[:-1]), window[1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        line = "".join(LETTERS[i] for i in generate(model, BEGINNINGS[rank]))
        lines = [None] * world
        dist.all_gather_object(lines, line)
        if rank == 0:
            print(f"epoch {epoch}: {lines}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
