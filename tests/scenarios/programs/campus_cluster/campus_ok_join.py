"""Handwriting recognition on letters of unequal archives: DDP's join takes care of who has fewer."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

ARCHIVES = {"Basel": 25, "Uppsala": 40, "Coimbra": 25}


class Archive(torch.utils.data.IterableDataset):
    def __init__(self, name: str, batches: int) -> None:
        self.name, self.batches = name, batches

    def __iter__(self):
        rng = torch.Generator().manual_seed(len(self.name))
        for number in range(self.batches):
            # The later letters of the largest archive are long ones, and are read with care.
            time.sleep(0.6 if number >= 25 else 0.05)
            letters = torch.randint(0, 10, (16,), generator=rng)
            yield torch.randn(16, 12, generator=rng) + 0.3 * letters.unsqueeze(1), letters


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    name, batches = list(ARCHIVES.items())[rank]
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    seen = 0
    with Join([model]):
        for strokes, letters in Archive(name, batches):
            loss = nn.functional.cross_entropy(model(strokes), letters)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(letters)
    counts = [None] * dist.get_world_size()
    dist.all_gather_object(counts, (name, seen))
    if rank == 0:
        print(f"loss {loss.item():.3f}, {counts}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
