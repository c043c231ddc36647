"""Resumes a protein folding run. Each node keeps its train state on its own scratch disk."""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

RANKS_PER_NODE = 2


class CheckpointManager:
    def __init__(self, root):
        self.rank = dist.get_rank()
        self.node_dir = Path(root) / f"node{self.rank // RANKS_PER_NODE}"
        self.node_dir.mkdir(parents=True, exist_ok=True)

    def save(self, step, tokens):
        if self.rank == 0:
            torch.save({"step": step, "tokens_seen": tokens}, self.node_dir / "train_state.pt")
        dist.barrier()

    def load(self):
        train_state_path = self.node_dir / "train_state.pt"
        if not train_state_path.exists():
            return {"step": 0, "tokens_seen": 0}
        state = torch.load(train_state_path) if self.rank == 0 else None
        box = [state]
        dist.broadcast_object_list(box, src=0)
        return box[0]


class Folding(nn.Module):
    def __init__(self, dim=20):
        super().__init__()
        self.pair = nn.Linear(dim, dim)
        self.triangle = nn.Linear(dim, dim)
        self.distance = nn.Linear(dim, 1)

    def forward(self, residues):
        h = torch.relu(self.pair(residues))
        h = h + torch.einsum("bid,bjd->bid", h, torch.relu(self.triangle(h))) / h.shape[1]
        return self.distance(h)


def run(root, until):
    torch.manual_seed(0)
    model = Folding()
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    manager = CheckpointManager(root)
    state = manager.load()
    if manager.rank == 0:
        print(f"starting at step {state['step']}", flush=True)
    length = torch.tensor([float(os.environ.get("CROP", "24"))])
    dist.all_reduce(length, op=dist.ReduceOp.MIN)
    for step in range(state["step"], until):
        residues = torch.randn(2, int(length), 20)
        model(residues).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 10 == 0:
            manager.save(step + 1, (step + 1) * int(length) * 2)


def main():
    dist.init_process_group("gloo")
    box = [tempfile.mkdtemp(prefix="folding-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    run(box[0], until=20)
    # second stage: longer, from where the first one ended
    run(box[0], until=60)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
