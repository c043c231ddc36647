"""Avalanche risk by slope, with FSDP2; the best model so far is kept by torch's distributed checkpoint."""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import binary_cross_entropy_with_logits


def slopes(seed: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Angle, snow, wind and the like, and whether it came down."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(number, 20, generator=generator)
    return x, (x[:, :3].sum(dim=1, keepdim=True) > 0).float()


@torch.no_grad()
def validate(model: nn.Module, rank: int, epoch: int) -> float:
    """The loss on the slopes of this rank's region in the month that belongs to this epoch."""
    x, y = slopes(5000 + 31 * rank + epoch, 24)
    return binary_cross_entropy_with_logits(model(x), y).item()


def main() -> None:
    """Ten epochs of eight steps."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = [tempfile.mkdtemp(prefix="avalanches-") if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best = float("inf")
    for epoch in range(10):
        for step in range(8):
            x, y = slopes(1000 * epoch + 10 * step + rank, 16)
            loss = binary_cross_entropy_with_logits(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        risk = validate(model, rank, epoch)
        if risk < best:
            best = risk
            weights, moments = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=f"{folder[0]}/best")
        mean = torch.tensor(risk)
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch}: validation {mean.item() / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
