"""A letter model under FSDP2 learns limericks, and goes on from given beginnings after every epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

TEXT = "there was an old man of the coast, who placidly sat on a post, but when it was cold, he let go his hold. "
LETTERS = sorted(set(TEXT))
BEGINNINGS = ["there was an old man of", "who placidly", "but when it was"]
LENGTH, WIDTH = 40, 32


class Poet(nn.Module):
    """The next letter from the last few."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS), WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
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
def generate(model: Poet, beginning: str) -> torch.Tensor:
    """Goes on letter by letter until the line is full."""
    tokens = encode(beginning)
    while len(tokens) < LENGTH:
        scores = model(tokens)[-1]
        tokens = torch.cat([tokens, scores.argmax().view(1)])
    return tokens


def main() -> None:
    """Six epochs."""
    mesh = init_device_mesh("cpu", (3,))
    rank, world = mesh.get_rank(), mesh.size()
    torch.manual_seed(0)
    model = Poet()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tokens = encode(TEXT * 2)
    for epoch in range(6):
        for start in range(rank, len(TEXT) - world, 6):
            window = tokens[start : start + 33]
            loss = nn.functional.cross_entropy(model(window[:-1]), window[1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        line = generate(model, BEGINNINGS[rank])
        kinds = torch.tensor(float(len(line.unique())))
        dist.all_reduce(kinds)
        if rank == 0:
            print(f"epoch {epoch}: {''.join(LETTERS[i] for i in line)!r}, {kinds.item() / world:.1f} letters a line")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
