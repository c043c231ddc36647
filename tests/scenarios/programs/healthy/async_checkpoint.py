"""FSDP2 with ``dcp.async_save``: while training goes on, a thread of every rank writes the checkpoint, over its own group."""

import tempfile
import time
from concurrent.futures import Future
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class SlowWriter(FileSystemWriter):
    """Writes to something far away."""

    def write_data(self, plan, planner):
        """Takes longer on rank 1."""
        time.sleep(4 if dist.get_rank() == 1 else 1)
        return super().write_data(plan, planner)


def main() -> None:
    """Forty steps, a checkpoint begun every fifteenth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    saving = dist.new_group(backend="gloo")
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    folder = Path(tempfile.gettempdir())
    saved: Future | None = None
    for step in range(1, 41):
        inputs = torch.randn(4, 16)
        (model(inputs) - inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.1)
        if step % 15 == 0:
            if saved is not None:
                saved.result()
            state = {"model": get_model_state_dict(model)}
            saved = dcp.async_save(state, storage_writer=SlowWriter(folder / f"step-{step}"), process_group=saving)
            print(f"[{dist.get_rank()}] step {step}: saving\n", end="", flush=True)
    saved.result()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
