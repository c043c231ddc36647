"""FullyShardedDataParallel, and an export of the full weights as for plain DDP: by the one rank that has the registry.

Run by ``torchrun --nproc-per-node 4``.
"""

import io
from typing import Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType


class Registry(Protocol):
    """Takes finished models."""

    def publish(self, name: str, content: bytes) -> None:
        """Put a model on show."""


class MemoryRegistry:
    """Keeps them in memory."""

    def __init__(self) -> None:
        self.models: dict[str, int] = {}

    def publish(self, name: str, content: bytes) -> None:
        """Note its size."""
        self.models[name] = len(content)


class Session:
    """One training session."""

    def __init__(self, registry: Registry | None) -> None:
        torch.manual_seed(0)
        self.registry = registry
        layers = [FullyShardedDataParallel(nn.Linear(12, 12), device_id=torch.device("cpu")) for _ in range(2)]
        self.model = FullyShardedDataParallel(nn.Sequential(*layers), device_id=torch.device("cpu"))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def run(self, steps: int) -> float:
        """So many steps; the last loss over all ranks."""
        for _ in range(steps):
            x = torch.randn(4, 12)
            loss = (self.model(x) - x).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        last = loss.detach()
        dist.all_reduce(last)
        return float(last) / dist.get_world_size()

    def export(self, name: str) -> None:
        """Publish the weights."""
        if self.registry is None:
            return
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=False)
        with FullyShardedDataParallel.state_dict_type(self.model, StateDictType.FULL_STATE_DICT, config):
            weights = self.model.state_dict()
        buffer = io.BytesIO()
        torch.save(weights, buffer)
        self.registry.publish(name, buffer.getvalue())


def main() -> None:
    """Three sessions of twenty steps; the third rank's node has the registry."""
    dist.init_process_group("gloo")
    session = Session(MemoryRegistry() if dist.get_rank() == 2 else None)
    for number in range(3):
        print(session.run(20), flush=True)
        dist.barrier()
        session.export(f"model-{number}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
