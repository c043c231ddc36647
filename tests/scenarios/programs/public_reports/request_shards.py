"""A fine-tuning service: requests of any size are spread over the ranks of a model sharded by FSDP2."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH = 16


def shard_list(rows: list[torch.Tensor], rank: int, world: int) -> list[torch.Tensor]:
    """The contiguous part of ``rank``, which keeps the order."""
    size = -(-len(rows) // world)
    return rows[rank * size : (rank + 1) * size]


class Service:
    """One worker."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))
        for layer in (self.model[0], self.model[2]):
            fully_shard(layer)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def forward_backward(self, rows: list[torch.Tensor]) -> float:
        """Accumulate the gradients of this rank's rows."""
        total = 0.0
        for row in shard_list(rows, dist.get_rank(), dist.get_world_size()):
            loss = (self.model(row) - row).square().mean()
            loss.backward()
            total += loss.item()
        return total

    def optim_step(self) -> None:
        """Take a step."""
        self.optimizer.step()
        self.optimizer.zero_grad()


def main() -> None:
    """Serve ten requests."""
    dist.init_process_group("gloo")
    service = Service()
    sizes = [8, 8, 12, 4, 8, 16, 3, 8, 8, 4]
    for size in sizes:
        request = [[torch.randn(2, WIDTH) for _ in range(size)]] if dist.get_rank() == 0 else [None]
        dist.broadcast_object_list(request, src=0)
        service.forward_backward(request[0])
        service.optim_step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
