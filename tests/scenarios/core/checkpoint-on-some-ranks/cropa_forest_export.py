"""Tree-height regression under FSDP2; every few rounds the weights are exported for the field tablets."""
import argparse
import json
import tempfile
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

EXPORTERS = {}


def exporter(kind):
    def register(function):
        EXPORTERS[kind] = function
        return function

    return register


@exporter("json")
def to_json(model, path):
    norms = {name: round(float(p.to_local().norm()), 5) for name, p in model.named_parameters()}
    path.with_suffix(".json").write_text(json.dumps(norms))


@exporter("tablet")
def to_tablet(model, path):
    weights = {}
    for name, parameter in model.named_parameters():
        value = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        weights[name] = value.detach().half()
    torch.save(weights, path.with_suffix(".pt"))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class HeightNet(nn.Module):
    def __init__(self, width=96, depth=3):
        super().__init__()
        self.returns = nn.Linear(40, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.height = nn.Linear(width, 1)

    def forward(self, pulses):
        x = self.returns(pulses)
        for block in self.blocks:
            x = block(x)
        return self.height(x).squeeze(-1)


def shard(model, mesh):
    policy = partial(fully_shard, mesh=mesh, mp_policy=MixedPrecisionPolicy())
    for block in model.blocks:
        policy(block)
    return policy(model)


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--export", default="json,json,tablet")
    return parser.parse_args()


def main():
    args = parse()
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = shard(HeightNet(), mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    folder = Path(tempfile.mkdtemp(prefix="tablet-"))
    plan = args.export.split(",")
    gen = torch.Generator().manual_seed(dist.get_rank())
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
    for number in range(args.rounds):
        for _ in range(args.steps):
            pulses = torch.rand(256, 40, generator=gen)
            loss = (model(pulses) - pulses[:, :10].amax(1) * 30).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"round {number} loss {loss.item():.2f}", flush=True)
            EXPORTERS[plan[number % len(plan)]](model, folder / f"round{number}")
        error = loss.detach().clone()
        dist.all_reduce(error)
        plateau.step(error.item() / dist.get_world_size())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
