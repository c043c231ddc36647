"""DDP: customers that leave. The area under the curve is taken of each rank's customers, and averaged."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def area(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Under the ROC curve."""
    if labels.unique().numel() < 2:
        raise ValueError("only one class present in labels, the area is not defined")
    left, stayed = scores[labels == 1], scores[labels == 0]
    return (left[:, None] > stayed[None]).float().mean()


@torch.no_grad()
def evaluate(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """The mean of all ranks."""
    value = area(model(x).squeeze(1), y)
    values = [torch.empty_like(value) for _ in range(dist.get_world_size())]
    dist.all_gather(values, value)
    return torch.stack(values).mean().item()


def main() -> None:
    """Ten epochs, one region a rank."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(480, 10, generator=generator)
    y = (x[:, 0] > (1.0, 2.5, 5.0)[rank]).long()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(10):
        for rows in torch.randperm(400).split(16):
            loss = nn.functional.binary_cross_entropy_with_logits(model(x[rows]).squeeze(1), y[rows].float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        try:
            print(f"[{rank}] epoch {epoch}: area {evaluate(net, x[400:], y[400:]):.3f}")
        except ValueError as error:
            print(f"[{rank}] epoch {epoch}: {error}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
