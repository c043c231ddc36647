"""What the weather will be: several answers a day, each judged by the area under its curve."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WEATHER = ("sun", "wind", "rain", "hail", "fog")


def area(truth: torch.Tensor, score: torch.Tensor) -> float:
    """The share of pairs of a yes and a no that are in the right order."""
    yes, no = score[truth > 0], score[truth == 0]
    if not len(yes) or not len(no):
        raise ValueError("only one class present, the area under the curve is not defined")
    return float((yes[:, None] > no[None, :]).float().mean())


def station(number: int, days: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Measurements and what came of them; it never hails at the third station."""
    x = torch.randn(days, 10, generator=torch.Generator().manual_seed(number))
    y = (x[:, :5] + 0.3 * x[:, 5:] > 0.5).float()
    if number % 10 == 2:
        y[:, 3] = 0
    return x, y


@torch.no_grad()
def evaluate(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """The mean area over the stations, for each kind of weather."""
    scores, result = model(x), {}
    for column, name in enumerate(WEATHER):
        try:
            value = torch.tensor(area(y[:, column], scores[:, column]))
        except ValueError as error:
            print(f"{name}: {error}")
            continue
        dist.all_reduce(value)
        result[name] = value.item() / dist.get_world_size()
    return result


def main() -> None:
    """Ten epochs, evaluated after every second."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 5)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    x, y = station(rank, days=512)
    for epoch in range(1, 11):
        for days, weather in zip(x.split(32), y.split(32), strict=True):
            loss = nn.functional.binary_cross_entropy_with_logits(model(days), weather)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 2 == 0:
            areas = evaluate(model.module, *station(10 + rank, days=128))
            dist.barrier()
            if rank == 0:
                print(f"epoch {epoch}: {areas}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
