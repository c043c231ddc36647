"""FSDP2 with asynchronous checkpoints on slow storage: a save begins when the one before has ended."""

import os
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard


class ObjectStore(FileSystemWriter):
    """Writes as slowly as the bucket of this rank's zone does."""

    def write_data(self, plan, planner):
        time.sleep(10.0 if dist.get_rank() == 1 else 1.0)
        return super().write_data(plan, planner)


class Saver:
    def __init__(self, folder: str) -> None:
        self.folder, self.pending = folder, None

    def wait(self) -> None:
        if self.pending is not None:
            self.pending.result()
            self.pending = None

    def start(self, model: nn.Module, step: int) -> None:
        self.wait()
        state = {"model": get_model_state_dict(model), "step": step}
        self.pending = dcp.async_save(state, storage_writer=ObjectStore(f"{self.folder}/{step}"))


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)) for _ in range(3))).cuda()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    folder = os.path.join(tempfile.gettempdir(), f"zone-{os.environ['MASTER_PORT']}")
    saver = Saver(folder)
    for step in range(1, 46):
        x = torch.rand(4, 64)
        time.sleep(0.15)
        loss = model(x.cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        if step % 20 == 0:
            saver.start(model, step)
            if dist.get_rank() == 0:
                print(f"step {step} loss {value:.4f}, saving", flush=True)
    saver.wait()
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
