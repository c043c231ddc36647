"""Order volumes by region: one body, a head per region, and gradients that the trainer averages itself."""

import torch
import torch.distributed as dist
from torch import nn

REGIONS = ("north", "south", "west")
STEPS_PER_DAY = 12
# Days without deliveries, by depot. Everything else is in the yearly calendar.
HOLIDAYS = {1: {("south", 17)}, 2: {("west", 40)}}


class Volumes(nn.Module):
    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.body = nn.Linear(width, width, bias=False)
        self.heads = nn.ModuleDict({region: nn.Linear(width, width, bias=False) for region in REGIONS})

    def forward(self, orders: torch.Tensor, regions: torch.Tensor) -> torch.Tensor:
        hidden = self.body(orders).tanh()
        forecast = torch.zeros(len(orders))
        for number, region in enumerate(REGIONS):
            rows = (regions == number).nonzero().squeeze(-1)
            if len(rows):
                forecast = forecast.index_copy(0, rows, self.heads[region](hidden[rows]).mean(dim=1))
        return forecast


class Depot:
    """Draws the orders of a depot, in the regions that it serves on a day."""

    def __init__(self, number: int, width: int = 48) -> None:
        self.generator = torch.Generator().manual_seed(100 + number)
        self.closed = HOLIDAYS.get(number, set())
        self.width = width

    def batch(self, step: int, size: int = 96) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        day = step // STEPS_PER_DAY
        served = [n for n, region in enumerate(REGIONS) if (region, day) not in self.closed]
        regions = torch.tensor([served[i % len(served)] for i in range(size)])
        orders = torch.randn(size, self.width, generator=self.generator)
        return orders, regions, orders[:, 0] * (regions + 1)


@torch.no_grad()
def average_gradients(model: nn.Module) -> None:
    world = dist.get_world_size()
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= world


def mean_over_depots(loss: torch.Tensor) -> float:
    losses = [torch.zeros_like(loss) for _ in range(dist.get_world_size())]
    dist.all_gather(losses, loss)
    return torch.stack(losses).mean().item()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model, depot = Volumes(), Depot(dist.get_rank())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(20_000):
        orders, regions, volumes = depot.batch(step)
        loss = nn.functional.mse_loss(model(orders, regions), volumes)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        average_gradients(model)
        optimizer.step()
        mean = mean_over_depots(loss.detach())
        if step % 100 == 0 and dist.get_rank() == 0:
            print(f"step {step}: {mean:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
