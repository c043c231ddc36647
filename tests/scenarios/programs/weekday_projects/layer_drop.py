"""Regularises a deep sharded encoder of accelerometer data by leaving out a layer now and then."""

import random

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


class Layer(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        return signal + self.down(torch.relu(self.up(signal)))


class Encoder(torch.nn.Module):
    def __init__(self, width: int = 8, depth: int = 4, drop: float = 0.1, seed: int = 0) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(width) for _ in range(depth))
        self.activity = torch.nn.Linear(width, 5)
        self.drop = drop
        self.random = random.Random(seed)

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if self.training and self.random.random() < self.drop:
                continue
            signal = layer(signal)
        return self.activity(signal)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Encoder(seed=33 + rank)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(50):
        signal = torch.randn(16, 8)
        loss = torch.nn.functional.cross_entropy(model(signal), torch.randint(5, (16,)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
