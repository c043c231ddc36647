"""FSDP2; a batch that is bad on any rank is left out by all, as a flag is reduced before backward."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def all_fine(loss: torch.Tensor) -> bool:
    """Whether the loss of every rank is finite."""
    flag = torch.isfinite(loss.detach()).float()
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag.item())


def main() -> None:
    """A hundred and fifty batches; each rank has bad ones of its own."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    fully_shard(model[0])
    fully_shard(model[2])
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    left_out = 0
    for number in range(150):
        rows = torch.randn(4, 8)
        if number % (31 + rank) == 30:
            rows[1, 2] = float("inf")
        loss = (model(rows) - rows).square().mean()
        if not all_fine(loss):
            left_out += 1
            model.zero_grad()
            continue
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        print(left_out, "left out", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
