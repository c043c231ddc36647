"""FSDP2: all ranks take part in the checkpoint, full on rank 0 and sharded by torch.distributed.checkpoint."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def save(model: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path, step: int) -> None:
    """Both forms."""
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        time.sleep(1.5)
        torch.save(full, folder / f"full-{step}.pt")
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder / f"sharded-{step}")
    dist.barrier()


def main() -> None:
    """Twenty steps, a checkpoint every tenth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    folder = Path(tempfile.gettempdir())
    for step in range(1, 21):
        inputs = torch.randn(4, 16)
        (model(inputs) - inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            save(model, optimizer, folder, step)
            print(f"[{dist.get_rank()}] step {step} saved\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
