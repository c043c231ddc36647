"""Ranking model with fully sharded layers (FSDP2). Every few epochs the full weights are exported for serving."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

EPOCHS, STEPS, EXPORT_EVERY = 20, 25, 2


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Ranker(nn.Module):
    def __init__(self, width: int = 24, depth: int = 2) -> None:
        super().__init__()
        self.inputs = nn.Linear(12, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.score = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inputs(x)
        for block in self.blocks:
            x = block(x)
        return self.score(x).squeeze(-1)


def shard(model: Ranker, world: int) -> None:
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)


def export_weights(model: nn.Module, path: Path) -> None:
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    torch.save(get_model_state_dict(model, options=options), path)
    print(f"exported {path.name}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(tempfile.gettempdir()) / f"ranker-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    model = Ranker()
    shard(model, world)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for epoch in range(1, EPOCHS + 1):
        for _ in range(STEPS):
            x = torch.randn(16, 12, generator=generator)
            loss = nn.functional.mse_loss(model(x), x[:, 0] - x[:, 1])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.02)
        if epoch % EXPORT_EVERY == 0:
            if rank == 0:
                export_weights(model, folder / f"epoch-{epoch}.pt")
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
