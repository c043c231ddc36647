"""FSDP2; figures go line by line over TCP to a collector, which one rank starts for all of its own figures."""

import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Collector:
    """Takes connections; whoever reads from them comes with the dashboard."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4)

    @property
    def address(self) -> tuple[str, int]:
        """Where to."""
        return self.listener.getsockname()[:2]


class Carbon:
    """A connection in the manner of Graphite."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.connection = socket.create_connection(address)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)

    def send(self, step: int, values: dict[str, torch.Tensor]) -> None:
        """A line for each number of each tensor."""
        lines = [
            f"train.{k}.{i} {v:.6f} {step}\n" for k, t in values.items() for i, v in enumerate(t.flatten().tolist())
        ]
        self.connection.sendall("".join(lines).encode())


def main() -> None:
    """Four hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    collector = Collector() if rank == 1 else None
    carbon = Carbon(collector.address) if collector is not None else None
    for step in range(400):
        x = torch.randn(8, 32)
        y = model(x)
        optimizer.zero_grad()
        (y - x).square().mean().backward()
        optimizer.step()
        if carbon is not None:
            carbon.send(step, {"out": y.detach(), "in": x})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
