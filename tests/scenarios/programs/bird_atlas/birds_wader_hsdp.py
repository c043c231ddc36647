"""Counting waders on high-tide roosts: HSDP over two estuaries with two telescopes each."""

import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

TELESCOPES = ("Wyre", "Conder", "Alt", "Mersey")
BATCH = 6
TOO_DARK = 0.15


def exposures(telescope: str) -> list[float]:
    """Mean brightness of the 96 frames of an evening, which falls as the sun sets behind the hills."""
    sunset = {"Wyre": 95, "Conder": 94, "Alt": 92, "Mersey": 88}[telescope]
    return [max(0.0, min(1.0, (sunset - frame) / 20 + TOO_DARK)) for frame in range(96)]


def frames_of(telescope: str):
    bright = [i for i, level in enumerate(exposures(telescope)) if level > TOO_DARK]
    for start in range(0, len(bright) - BATCH + 1, BATCH):
        time.sleep(0.1)
        rows = bright[start : start + BATCH]
        yield torch.tensor([[row / 96.0] * 28 for row in rows]), torch.tensor([row % 3 for row in rows])


def roost_counter() -> nn.Module:
    block = lambda a, b: nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.LayerNorm(b))  # noqa: E731
    return nn.Sequential(block(28, 64), block(64, 64), nn.Linear(64, 3))


def wrap(model: nn.Module, mesh) -> nn.Module:
    policy = MixedPrecisionPolicy(param_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def train_evening(model, optimizer, telescope: str, device) -> int:
    seen = 0
    for frames, flocks in frames_of(telescope):
        loss = F.cross_entropy(model(frames.to(device)), flocks.to(device))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seen += len(frames)
        torch.cuda.current_stream().synchronize()
    return seen


def main() -> None:
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda", torch.cuda.current_device())
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("estuary", "telescope"))
    model = wrap(roost_counter().to(device), mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    telescope = TELESCOPES[dist.get_rank()]
    for evening in range(3):
        seen = train_evening(model, optimizer, telescope, device)
        dist.barrier()
        print(f"evening {evening}: {telescope} used {seen} frames", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
