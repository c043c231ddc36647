"""Tensor-parallel inference: the first rank takes requests as they come, the others follow it."""

import time

import torch
import torch.distributed as dist
from torch import nn

ARRIVALS = [0.0, 0.2, 0.4, 3.4, 3.5, 6.5, 6.6, 6.7, 9.9]  # seconds


class ColumnRow(nn.Module):
    """Two layers, split over the ranks by columns, then by rows."""

    def __init__(self, width: int) -> None:
        super().__init__()
        world = dist.get_world_size()
        self.up = nn.Linear(width, 4 * width // world, bias=False)
        self.down = nn.Linear(4 * width // world, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks."""
        y = self.down(torch.relu(self.up(x)))
        dist.all_reduce(y)
        return x + y


def serve(model: nn.Sequential) -> int:
    """Answer until there are no more requests."""
    rank, served, begin = dist.get_rank(), 0, time.monotonic()
    while True:
        request: list[dict | None] = [None]
        if rank == 0 and served < len(ARRIVALS):
            time.sleep(max(0.0, begin + ARRIVALS[served] - time.monotonic()))
            request = [{"prompt": torch.randn(1, 16), "tokens": 5 + served}]
        dist.broadcast_object_list(request, src=0)
        if request[0] is None:
            return served
        hidden = request[0]["prompt"]
        for _ in range(request[0]["tokens"]):
            hidden = nn.functional.normalize(model(hidden), dim=-1)
        served += 1


def main() -> None:
    """Nine requests in ten seconds."""
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = nn.Sequential(*(ColumnRow(16) for _ in range(3)))
    with torch.no_grad():
        served = serve(model)
    if dist.get_rank() == 0:
        print(served, "requests served", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
