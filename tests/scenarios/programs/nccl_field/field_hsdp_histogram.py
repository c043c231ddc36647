"""Hybrid sharded training on a 2 x 2 mesh, with statistics of the weights for a dashboard."""

import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Dashboard:
    """Appends a line of JSON for each report."""

    def __init__(self, path: str | None) -> None:
        self.path = path

    @property
    def enabled(self) -> bool:
        return self.path is not None

    def weights(self, step: int, model: nn.Module) -> None:
        largest = {name: p.full_tensor().abs().max().item() for name, p in model.named_parameters()}
        with open(self.path, "a") as file:
            file.write(json.dumps({"step": step, "largest": largest}) + "\n")


def setup_mesh():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))


def train(mesh) -> None:
    torch.manual_seed(7)
    model = nn.Sequential(*(Block(64) for _ in range(3)), nn.Linear(64, 10)).cuda()
    for block in model[:3]:
        fully_shard(block, mesh=mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float32))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    dashboard = Dashboard(os.devnull if dist.get_rank() == 0 else None)
    for step in range(1, 80):
        data = torch.rand(8, 64)
        time.sleep(0.25)
        loss = model(data.cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen = float(loss.detach().cpu())
        if dashboard.enabled and step % 10 == 0:
            dashboard.weights(step, model)
        if dist.get_rank() == 0:
            print(f"{step}: {seen:.4f}", flush=True)


if __name__ == "__main__":
    train(setup_mesh())
    dist.destroy_process_group()
