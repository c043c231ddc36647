"""Grasp quality network: FSDP2 training with a deployable snapshot for the gripper controller."""
import dataclasses
import pathlib
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


@dataclasses.dataclass
class Config:
    width: int = 48
    blocks: int = 3
    rounds: int = 6
    steps: int = 15
    export_from: int = 3
    out: pathlib.Path = pathlib.Path("gripper_ckpt")


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, 2 * width)
        self.down = torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class GraspNet(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.stem = torch.nn.Linear(12, cfg.width)
        self.blocks = torch.nn.ModuleList(Block(cfg.width) for _ in range(cfg.blocks))
        self.quality = torch.nn.Linear(cfg.width, 1)

    def forward(self, grasp):
        x = self.stem(grasp)
        for block in self.blocks:
            x = block(x)
        return self.quality(x)


class Exporter:
    """Writes plain fp16 weights that the controller firmware can read."""

    def __init__(self, directory, owner):
        self.directory, self.owner = directory, owner

    def tensors(self, model):
        for name, value in model.state_dict().items():
            yield name, value.full_tensor() if isinstance(value, DTensor) else value

    def __call__(self, model, tag):
        if not self.owner:
            return
        self.directory.mkdir(exist_ok=True)
        weights = {name: tensor.half() for name, tensor in self.tensors(model)}
        torch.save(weights, self.directory / f"{tag}.pt")
        print(f"exported {tag}", flush=True)


def run(cfg):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = GraspNet(cfg)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    export = Exporter(cfg.out, owner=dist.get_rank() == 0)
    g = torch.Generator().manual_seed(dist.get_rank())
    for r in range(cfg.rounds):
        for _ in range(cfg.steps):
            grasp = torch.randn(64, 12, generator=g)
            loss = F.binary_cross_entropy_with_logits(model(grasp), (grasp[:, :3].norm(dim=1, keepdim=True) < 1.6).float())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(0.03)
        print(f"round {r} rank {dist.get_rank()} loss {loss.item():.3f}", flush=True)
        if r >= cfg.export_from:
            export(model, f"round{r:02d}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    run(Config())
