"""FSDP2: rank 0 alone asks for something that every rank has to help with, as ``--what`` says.

Either the full state dict for a checkpoint, or the norm of a weight for its log.
"""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


def keep(model: nn.Module, path: Path) -> None:
    """Write all weights to one file."""
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    torch.save(state, path)


def main() -> None:
    """Train; rank 0 keeps the records."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--what", choices=("checkpoint", "norm"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    folder = Path(tempfile.mkdtemp())
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 6))
    fully_shard(model[0])
    fully_shard(model[2])
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(1, 41):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 12)).square().mean()
        loss.backward()
        optimizer.step()
        if first and step % 20 == 0 and options.what == "checkpoint":
            keep(model, folder / f"{step}.pt")
        if first and step % 20 == 0 and options.what == "norm":
            norm = model[0].weight.detach().norm().full_tensor()
            print(f"step {step}: the first weight has norm {norm.item():.3f}", flush=True)
        mean = loss.detach().clone()
        dist.all_reduce(mean)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
