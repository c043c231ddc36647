"""FSDP2, detection with an optional branch: masks are predicted where there is a box at all."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH = 8


def part() -> nn.Module:
    """All parts are of one size."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())


class Detector(nn.Module):
    """Backbone, and heads for boxes and masks."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.ModuleList(part() for _ in range(3))
        self.box_head, self.mask_head = part(), part()

    def forward(self, images: torch.Tensor, boxes: list[int]) -> torch.Tensor:
        """The sum of the losses."""
        x = images
        for layer in self.backbone:
            x = layer(x)
        loss = self.box_head(x).square().mean()
        positives = [row for row, count in enumerate(boxes) if count > 0]
        if len(positives) > 0:
            loss = loss + self.mask_head(x[positives]).square().mean()
        return loss


def annotations(rank: int, step: int) -> list[int]:
    """Boxes in each image of a batch; part 1 has a night on the motorway in it."""
    if rank == 1 and 30 <= step < 34:
        return [0, 0, 0, 0]
    return [(step + k + rank) % 3 for k in range(4)]


def main() -> None:
    """Sixty steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    detector = Detector()
    for layer in [*detector.backbone, detector.box_head, detector.mask_head]:
        fully_shard(layer)
    fully_shard(detector)
    optimizer = torch.optim.AdamW(detector.parameters(), lr=1e-3)
    for step in range(60):
        loss = detector(torch.randn(4, WIDTH), annotations(dist.get_rank(), step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
