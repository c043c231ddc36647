"""FSDP2: a ranker of search results for the web shop. After each round the weights are exported for the serving team."""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

WIDTH = 48
ROUND = 80


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Ranker(nn.Module):
    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.score = nn.Linear(WIDTH, 1)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            pairs = block(pairs)
        return self.score(pairs).squeeze(-1)


def sharded_ranker() -> nn.Module:
    torch.manual_seed(8)
    model = Ranker()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # gloo has no mean
    return model


def export(model: nn.Module, path: Path) -> None:
    """Writes whole tensors: the serving side knows nothing of shards."""
    if dist.get_rank() == 0:
        weights = {}
        for name, parameter in model.state_dict().items():
            weights[name] = parameter.full_tensor().cpu()
        torch.save(weights, path)
        print(f"exported {len(weights)} tensors to {path}", flush=True)
    dist.barrier()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = sharded_ranker()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(dist.get_rank())
    folder = Path(tempfile.gettempdir()) / f"ranker-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    for round_number in range(50):
        for _ in range(ROUND):
            pairs = torch.randn(64, WIDTH, generator=generator)
            clicked = (pairs[:, 0] > 0).float()
            loss = nn.functional.binary_cross_entropy_with_logits(model(pairs), clicked)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        export(model, folder / f"ranker-{round_number}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
