"""DDP over scraped images: what cannot be read is left out by the collate function."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    """Some files are web pages that say "not found"."""

    def __init__(self, rank: int, size: int) -> None:
        self.size = size
        self.broken = set(range(5, size, 17)) | (set(range(84, 88)) if rank == 1 else set())

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int] | None:
        """An image and its class, or nothing."""
        try:
            if index in self.broken:
                raise OSError(f"image {index}: cannot identify image file")
            return torch.rand(3, 8, 8), index % 5
        except OSError:
            return None


def collate(samples: list[tuple[torch.Tensor, int] | None]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """A batch of what there is."""
    good = [sample for sample in samples if sample is not None]
    if not good:
        return None
    return torch.stack([image for image, _ in good]), torch.tensor([label for _, label in good])


def main() -> None:
    """Two epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Images(rank, 240), batch_size=4, collate_fn=collate)
    for epoch in range(2):
        correct, seen = 0, 0
        for batch in loader:
            if batch is None:
                continue
            images, labels = batch
            logits = model(images)
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()
            correct, seen = correct + int((logits.argmax(1) == labels).sum()), seen + len(labels)
        scores: list[float | None] = [None] * dist.get_world_size()
        dist.all_gather_object(scores, correct / seen)
        if rank == 0:
            print(f"epoch {epoch}: {scores}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
