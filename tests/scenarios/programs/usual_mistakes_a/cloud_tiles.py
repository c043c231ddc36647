"""DDP: land cover from satellite tiles, in which clouds are masked out."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

COVERS = 6
OVERCAST = range(402, 414)


class Tiles(Dataset):
    """Tiles of 16 by 16 in path order, with four bands."""

    def __len__(self) -> int:
        """All paths."""
        return 900

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Bands, covers, and where the sky was clear."""
        generator = torch.Generator().manual_seed(index)
        bands = torch.rand(4, 16, 16, generator=generator)
        clear = torch.rand(16, 16, generator=generator) > 0.3
        if index in OVERCAST:
            clear.zero_()
        return bands, (bands.sum(0) * 1.49).long().clamp(max=COVERS - 1), clear


class InOrder(DistributedSampler):
    """A stretch of the path for each process."""

    def __iter__(self):
        """From west to east."""
        return iter(range(self.rank * self.num_samples, (self.rank + 1) * self.num_samples))


def main() -> None:
    """Three epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    tiles = Tiles()
    loader = DataLoader(tiles, batch_size=6, sampler=InOrder(tiles, shuffle=False))
    model = DistributedDataParallel(nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, COVERS, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    for epoch in range(3):
        confusion = torch.zeros(COVERS, COVERS, dtype=torch.long)
        for bands, covers, clear in loader:
            if not clear.any():
                continue
            scores = model(bands)
            loss = nn.functional.cross_entropy(scores, covers, reduction="none")[clear].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pairs = covers[clear] * COVERS + scores.argmax(1)[clear]
            confusion += torch.bincount(pairs, minlength=COVERS**2).view(COVERS, COVERS)
        everywhere = [torch.empty_like(confusion) for _ in range(dist.get_world_size())]
        dist.all_gather(everywhere, confusion)
        if rank == 0:
            table = sum(everywhere)
            print(f"epoch {epoch}: {table.diag().sum() / table.sum():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
