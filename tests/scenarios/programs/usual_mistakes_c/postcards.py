"""A small language model of postcards, tensor parallel: the vocabulary is split over the ranks, the loss too."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module

ALPHABET = " abcdefghijklmnopqrstuvwxyz.,!"
CARDS = ["the sea is calm, wish you were here!", "rain all week, but the food is good.", "we climbed the tower."]


class Writer(nn.Module):
    """Predicts the next letter from this one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(ALPHABET), width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, len(ALPHABET))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """The logits."""
        x = self.letters(text)
        return self.head(x + self.down(self.up(x).relu()))


def encode(card: str) -> torch.Tensor:
    """The letters' numbers."""
    return torch.tensor([ALPHABET.index(letter) for letter in card])


def main() -> None:
    """Three hundred steps, with a sample now and then."""
    mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("tp",))
    rank = mesh.get_rank()
    torch.manual_seed(0)
    plan = {
        "up": ColwiseParallel(),
        "down": RowwiseParallel(),
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    model = parallelize_module(Writer(24), mesh, plan)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
    for step in range(300):
        text = encode(CARDS[step % len(CARDS)])
        with loss_parallel():
            logits = model(text[:-1])
            loss = nn.functional.cross_entropy(logits, text[1:])
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        if rank == 0 and step % 50 == 49:
            best = logits.full_tensor().argmax(dim=-1)
            print(f"{step}: {''.join(ALPHABET[i] for i in best.tolist())}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
