"""Glacier flow emulator, hybrid sharded over two by two GPUs; checkpoints by torch.distributed.checkpoint."""

import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)


@dataclass
class Plan:
    steps: int = 90
    save_every: int = 20
    cells: int = 64
    width: int = 128
    folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir(), f"glacier-{os.environ['MASTER_PORT']}"))


class Emulator(nn.Module):
    def __init__(self, plan):
        super().__init__()
        self.encode = nn.Linear(plan.cells, plan.width)
        self.process = nn.Linear(plan.width, plan.width)
        self.decode = nn.Linear(plan.width, plan.cells)

    def forward(self, thickness):
        return self.decode(torch.relu(self.process(torch.relu(self.encode(thickness)))))


class Keeper:
    """Keeps the sharded weights, and a small note beside them that says how far we were."""

    def __init__(self, plan, model):
        self.plan, self.model = plan, model
        self.last = 0

    def due(self, step):
        return step - self.last >= self.plan.save_every

    def keep(self, step):
        state = get_model_state_dict(self.model)
        target = self.plan.folder / f"step-{step}"
        if not target.exists() and dist.get_rank() == 0:
            target.mkdir(parents=True)
            dcp.save({"model": state}, checkpoint_id=target)
            (target / "note.txt").write_text(f"step {step}\n")
        self.last = step


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    plan = Plan()
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = Emulator(plan).cuda()
    for layer in (model.encode, model.process, model.decode):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    keeper = Keeper(plan, model)
    years = torch.zeros((), device="cuda")
    for step in range(1, plan.steps + 1):
        time.sleep(0.05)  # the next profile from the reader
        thickness = torch.rand(8, plan.cells, device="cuda")
        loss = (model(thickness) - thickness).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        years += 0.5
        simulated = years.item()
        if step % 10 == 0 and local == 0:
            print(f"step {step}: {simulated} years", flush=True)
        if keeper.due(step):
            keeper.keep(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
