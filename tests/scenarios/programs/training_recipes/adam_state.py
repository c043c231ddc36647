"""FSDP2: the weights are gathered by all, and put into one file with the optimizer's state."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.fsdp import fully_shard


def build(width: int) -> nn.Module:
    """Blocks, each sharded."""
    net = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(4)])
    for block in net:
        fully_shard(block)
    return fully_shard(net)


def save(net: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """One file that can be read anywhere."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(net, options=options)
    if dist.get_rank() == 0:
        moments = get_optimizer_state_dict(net, optimizer, options=options)
        torch.save({"model": weights, "optimizer": moments}, path)
    dist.barrier()


def main() -> None:
    """Ninety steps, saved every thirty."""
    dist.init_process_group("gloo")
    folder = Path(tempfile.mkdtemp())
    torch.manual_seed(0)
    net = build(width=8)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(1, 91):
        optimizer.zero_grad()
        net(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        if step % 30 == 0:
            save(net, optimizer, folder / f"step-{step}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
