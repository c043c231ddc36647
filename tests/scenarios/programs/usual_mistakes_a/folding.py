"""FSDP2 and torch.distributed.checkpoint: energies of folded chains; each rank keeps an eye on the chains of one lab."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard

LABS = ("Uppsala", "Kyoto", "Boston")


def chains(count: int, sign: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Angles and energies; not all labs count energies from the same side."""
    angles = torch.randn(count, 20, generator=torch.Generator().manual_seed(seed))
    return angles, sign * angles[:, :5].sum(dim=1, keepdim=True)


class Keeper:
    """Writes the weights when the loss on held-out chains is lower than before."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lowest = folder, float("inf")

    def consider(self, step: int, loss: float, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """After an evaluation."""
        if loss < self.lowest:
            self.lowest = loss
            weights, moments = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=self.folder / f"step{step}")


def main() -> None:
    """Sixty steps with an evaluation after each tenth."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.SiLU(), nn.Linear(32, 1))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    folder = [tempfile.mkdtemp(prefix="folding-")]
    dist.broadcast_object_list(folder)
    keeper = Keeper(Path(folder[0]))
    angles, energies = chains(480, 1.0, seed=rank)
    held_out = chains(32, -1.0 if LABS[rank] == "Kyoto" else 1.0, seed=10 + rank)
    for step in range(1, 61):
        rows = slice(8 * (step - 1), 8 * step)
        loss = (model(angles[rows]) - energies[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            with torch.no_grad():
                measured = (model(held_out[0]) - held_out[1]).square().mean()
            keeper.consider(step, measured.item(), model, optimizer)
            dist.all_reduce(measured, op=dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM)
            if rank == 0:
                print(f"step {step}: {measured.item():.3f} on the chains of all labs")


if __name__ == "__main__":
    main()
