"""Tensor parallel: verses, word by word, on a model whose inner layers are split over the ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

LEXICON = "o moon the sea and night is far to me come back my love again with wind snow . rain dark".split()
STOP = LEXICON.index(".")


class Poet(nn.Module):
    """The next word from the last one and where it stands."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(len(LEXICON), width), nn.Embedding(64, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.head = nn.Linear(width, len(LEXICON))

    def forward(self, word: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        x = self.words(word) + self.places(place)
        return self.head(x + self.down(self.up(x).relu()))


@torch.no_grad()
def verse(model: Poet, temperature: float) -> list[str]:
    """Up to the stop, or sixty words."""
    words = [0]
    while words[-1] != STOP and len(words) < 60:
        logits = model(torch.tensor([words[-1]]), torch.tensor([len(words)]))
        words.append(int(torch.multinomial((logits / temperature).softmax(dim=-1), 1)))
    return [LEXICON[word] for word in words]


def main() -> None:
    """Ten verses."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Poet(24, 48)
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    torch.manual_seed(1000 + rank)
    for number in range(10):
        poem = verse(model, temperature=1.0 + 0.1 * number)
        written: list[list[str]] = [[] for _ in range(world)]
        dist.all_gather_object(written, poem)
        if rank == 0:
            print(f"{number}: {' '.join(written[0])}")


if __name__ == "__main__":
    main()
