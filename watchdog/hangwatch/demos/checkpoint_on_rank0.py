"""FSDP training that saves its checkpoint on rank 0 only, although gathering the full state dict needs every rank.

Run by ``torchrun --nproc-per-node 3``.
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def say(rank: int, text: str) -> None:
    """Print one line in one piece (Python under torchrun is unbuffered)."""
    print(f"[rank {rank}] {text}\n", end="", flush=True)


def save_checkpoint(model: torch.nn.Module, path: Path) -> None:
    """Write the whole model to one file."""
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    torch.save(state, path)


def main() -> None:
    """Train 12 steps and save after every fourth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(24, 48), torch.nn.ReLU(), torch.nn.Linear(48, 24))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 13):
        tokens = torch.tensor([8.0 * 24])
        dist.all_reduce(tokens)
        inputs = torch.randn(8, 24)
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        say(rank, f"step {step}: {tokens.item():.0f} tokens, loss {loss.item():.4f}")
        if step % 4 == 0 and rank == 0:
            save_checkpoint(model, Path(tempfile.gettempdir()) / "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
