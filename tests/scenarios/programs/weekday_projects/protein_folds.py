"""Predicts folds of proteins with DDP and saves a distributed checkpoint every few steps."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel


class Attention(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, residues: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(residues).chunk(3, -1)
        return residues + self.out(torch.nn.functional.scaled_dot_product_attention(q, k, v))


def build() -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(torch.nn.Sequential(Attention(12), Attention(12), torch.nn.Linear(12, 4)))


def save(model: DistributedDataParallel, folder: str, step: int) -> None:
    path = os.path.join(folder, f"step-{step}")
    os.makedirs(path, exist_ok=True)
    dcp.save({"model": model.module.state_dict()}, checkpoint_id=path)
    print("saved", path, flush=True)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = tempfile.mkdtemp(prefix="folds-") if rank == 0 else ""
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(1, 25):
        residues = torch.randn(2, 20, 12)
        loss = torch.nn.functional.cross_entropy(model(residues).flatten(0, 1), torch.randint(4, (40,)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 8 == 0 and rank == 0:
            save(model, folder, step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
