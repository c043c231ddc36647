"""DDP detector with several losses; a line with their means is printed every twenty steps."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Detector(nn.Module):
    """A trunk and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 24), nn.ReLU())
        self.classes = nn.Linear(24, 4)
        self.boxes = nn.Linear(24, 4)

    def forward(self, x: torch.Tensor, labels: torch.Tensor, boxes: torch.Tensor) -> dict[str, torch.Tensor]:
        """The losses by name."""
        features = self.trunk(x)
        return {
            "loss_cls": nn.functional.cross_entropy(self.classes(features), labels),
            "loss_bbox": nn.functional.l1_loss(self.boxes(features), boxes),
        }


@torch.no_grad()
def reduce_dict(losses: dict[str, torch.Tensor]) -> dict[str, float]:
    """Means over the processes, known to the first one."""
    names = sorted(losses)
    values = torch.stack([losses[name] for name in names])
    dist.reduce(values, dst=0)
    return dict(zip(names, (values / dist.get_world_size()).tolist(), strict=True))


def main() -> None:
    """Two hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(Detector())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(200):
        losses = model(torch.randn(6, 12), torch.randint(0, 4, (6,)), torch.rand(6, 4))
        total = sum(losses.values())
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        if rank == 0 and (step + 1) % 20 == 0:
            means = reduce_dict(losses)
            print(f"step {step + 1}: " + ", ".join(f"{name} {value:.3f}" for name, value in means.items()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
