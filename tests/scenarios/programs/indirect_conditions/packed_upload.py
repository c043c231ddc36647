"""FSDP2; all ranks write a sharded checkpoint, then one of them packs it in a child process, and all go on together."""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard

PACK = "import sys, tarfile, time; time.sleep(2.5); tarfile.open(sys.argv[2], 'w').add(sys.argv[1])"


def checkpoint(model: nn.Module, root: Path, step: int) -> None:
    """Write and pack."""
    folder = root / str(step)
    dcp.save(get_model_state_dict(model), checkpoint_id=folder)
    if dist.get_rank() == 1:
        subprocess.run([sys.executable, "-S", "-c", PACK, str(folder), f"{folder}.tar"], check=True)
    dist.barrier()


def main() -> None:
    """Sixty steps, a checkpoint after each thirty."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    root = [tempfile.mkdtemp()]
    dist.broadcast_object_list(root, src=0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
    for layer in (model[0], model[2], model):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 61):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
        if step % 30 == 0:
            checkpoint(model, Path(root[0]), step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
