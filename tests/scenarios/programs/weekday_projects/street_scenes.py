"""Detects objects in street scenes. Boxes that are too small to see are dropped."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Streets(Dataset):
    def __init__(self, count: int = 72) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        boxes = torch.rand(3, 4, generator=generator) * 0.5 + 0.2
        if index in (14, 17):
            boxes = boxes * 0.01
        return {"image": torch.rand(3, 12, 12, generator=generator), "boxes": boxes}


def collate(samples: list[dict[str, torch.Tensor]]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return torch.stack([s["image"] for s in samples]), [s["boxes"][s["boxes"][:, 2] > 0.1] for s in samples]


class Detector(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 6, 3, stride=2), torch.nn.BatchNorm2d(6), torch.nn.ReLU(), torch.nn.Flatten()
        )
        self.boxes = torch.nn.Linear(150, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.boxes(self.features(images))


def main() -> None:
    dist.init_process_group("gloo")
    dataset = Streets()
    loader = DataLoader(dataset, batch_size=2, sampler=DistributedSampler(dataset, shuffle=False), collate_fn=collate)
    torch.manual_seed(1)
    model = DistributedDataParallel(Detector())
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(3):
        total = torch.zeros(1)
        for images, targets in loader:
            keep = [number for number, boxes in enumerate(targets) if len(boxes)]
            if not keep:
                continue
            predicted = model(images)[keep]
            wanted = torch.stack([targets[number].mean(0) for number in keep])
            loss = torch.nn.functional.smooth_l1_loss(predicted, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {total.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
