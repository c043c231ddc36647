"""An atlas of cells under hybrid sharding: shards within a node, replicas across nodes. Broken plates are left out."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

GENES, CELLS = 64, 16


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(GENES, GENES)

    def forward(self, x):
        return x + torch.tanh(self.mix(x))


def shard(model, kind, device):
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("nodes", "cards"))
    if kind == "fsdp1":
        return FullyShardedDataParallel(
            model, device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD,
            auto_wrap_policy=ModuleWrapPolicy({Layer}), device_id=device,
        )  # fmt: skip
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def plate(rank, step, broken):
    cells = torch.randn(CELLS, GENES)
    if broken and (rank, step) == (3, 17):
        cells[0, 0] = float("nan")
    return cells


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["fsdp1", "fsdp2"], default="fsdp2")
    parser.add_argument("--broken", action="store_true")
    parser.add_argument("--agree", action="store_true", help="leave a step out on all ranks or on none")
    parser.add_argument("--save-every", type=int, default=0)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    model = shard(nn.Sequential(*(Layer() for _ in range(3))).to(device), options.kind, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    left_out = torch.zeros((), device=device)
    for step in range(1, 31):
        cells = plate(rank, step, options.broken)
        usable = torch.tensor(float(cells.isfinite().all()))
        if options.agree:
            usable = usable.to(device)
            dist.all_reduce(usable, op=dist.ReduceOp.MIN)
        if not usable.item():
            left_out += 1
            print(f"[{rank}] step {step}: left out", flush=True)
            continue
        model(cells.to(device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 0:
            torch.cuda.synchronize()
            print(f"[{rank}] step {step}", flush=True)
        if options.save_every and step % options.save_every == 0 and rank == 0:
            weights = {name: value.full_tensor().cpu() for name, value in model.state_dict().items()}
            print(f"{len(weights)} weights are kept", flush=True)
    dist.all_reduce(left_out)
    print(f"[{rank}] {left_out.item():.0f} plates left out", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
