"""Training on NCCL with two kinds of files: rank 0's own export, and a common checkpoint written through Gloo."""

import os
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Exporter:
    """Writes the inference weights; the checkpoint library wants a group, here one of a single rank."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.group = dist.new_group([dist.get_rank()])

    def export(self, model: nn.Module, step: int) -> None:
        dcp.save({"model": model.state_dict()}, checkpoint_id=f"{self.folder}/export{step}", process_group=self.group)


class Checkpointer:
    """Made when it is first used: short runs never save."""

    def __init__(self, folder: str) -> None:
        self.folder, self._group = folder, None

    @property
    def group(self) -> dist.ProcessGroup:
        if self._group is None:
            self._group = dist.new_group(backend="gloo", timeout=timedelta(minutes=30))
        return self._group

    def save(self, model: nn.Module, step: int) -> None:
        dcp.save({"model": model.state_dict(), "step": step}, checkpoint_id=f"{self.folder}/{step}", process_group=self.group)


def run(rank: int, local: int) -> None:
    folder = os.path.join(tempfile.gettempdir(), f"run-{os.environ['MASTER_PORT']}")
    net = nn.Sequential(nn.Linear(20, 40), nn.ReLU(), nn.Linear(40, 2)).cuda()
    model = DDP(net, device_ids=[local])
    exporter = Exporter(folder) if rank == 0 else None
    checkpoints = Checkpointer(folder)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
    for step in range(1, 200):
        x = torch.rand(8, 20)
        time.sleep(0.15)
        loss = model(x.cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
        if exporter and step % 15 == 0:
            exporter.export(net, step)
        if step % 30 == 0:
            checkpoints.save(net, step)


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    run(dist.get_rank(), int(os.environ["LOCAL_RANK"]))
    dist.destroy_process_group()
