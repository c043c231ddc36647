"""DDP: old prints by their engraver. Each rank reads its own store; workers are started anew in each epoch."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WAKES_S = (0.0, 2.5, 0.0)


class Prints(Dataset):
    """A store of 96 prints; one of the stores sleeps until somebody asks."""

    def __init__(self, store: int) -> None:
        self.store, self.awake = store, False

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if not self.awake:
            time.sleep(WAKES_S[self.store])
            self.awake = True
        return torch.randn(40, generator=torch.Generator().manual_seed(97 * self.store + index)), index % 5


def main() -> None:
    """Four epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(Prints(rank), batch_size=8, num_workers=1, shuffle=True)
    for epoch in range(4):
        right = torch.zeros(1)
        for prints, engravers in loader:
            logits = model(prints)
            loss = nn.functional.cross_entropy(logits, engravers)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.argmax(1) == engravers).sum()
        dist.all_reduce(right)
        if rank == 0:
            print(f"epoch {epoch}: {right.item() / 96 / dist.get_world_size():.1%}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
