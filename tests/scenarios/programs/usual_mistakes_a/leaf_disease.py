"""DDP: spots on tomato leaves, an orchard a process, with new pictures every day."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

KINDS = 5
ORCHARDS = {"north": (0.1, 0.1, 0.1), "south": (0.1, 0.1, 0.1), "west": (0.1, 0.9, 0.1)}


def leaves(number: int, seed: int, unsure: float) -> TensorDataset:
    """Thumbnails of 12 by 12 with a kind of disease, of which a share is a guess."""
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.randn(number, 3, 12, 12, generator=generator)
    kinds = (pictures[:, 0, :, :6].mean((1, 2)) * 12 + 2.5).long().clamp(0, KINDS - 1)
    guesses = torch.randint(0, KINDS, (number,), generator=generator)
    return TensorDataset(pictures, torch.where(torch.rand(number, generator=generator) < unsure, guesses, kinds))


@torch.no_grad()
def evaluate(network: nn.Module, loader: DataLoader) -> float:
    """Share of leaves that are named right, in all orchards."""
    network.eval()
    right = torch.zeros(2)
    for pictures, kinds in loader:
        right += torch.tensor([float((network(pictures).argmax(1) == kinds).sum()), float(len(kinds))])
    network.train()
    counts = [torch.empty_like(right) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, right)
    total = torch.stack(counts).sum(0)
    return (total[0] / total[1]).item()


def main() -> None:
    """Three days of two rounds each."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(800, KINDS))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    orchard = sorted(ORCHARDS)[rank]
    held_out = DataLoader(leaves(240, seed=rank, unsure=0.0), batch_size=40)

    least = float("inf")
    for day in range(3):
        loader = DataLoader(leaves(900, seed=10 * day + rank + 50, unsure=ORCHARDS[orchard][day]), batch_size=30)
        total = 0.0
        for _ in range(2):
            for pictures, kinds in loader:
                loss = nn.functional.cross_entropy(model(pictures), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
        if total < least:
            least = total
            print(f"[{orchard}] day {day}: loss {total:.1f}, accuracy {evaluate(network, held_out):.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
