"""FSDP2: the yield of a field from its weather; the weights are kept in one file after every fourth epoch."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def season(number: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weather of thirty weeks, and what the fields gave."""
    generator = torch.Generator().manual_seed(10 * number + rank)
    weather = torch.randn(20, 30, generator=generator)
    return weather, weather[:, 10:20].sum(dim=1, keepdim=True).tanh()


def save_weights(model: nn.Module, path: Path) -> None:
    """All weights in one file, for those who predict without torchrun."""
    weights = {name: shard.full_tensor().cpu() for name, shard in model.state_dict().items()}
    torch.save(weights, path)
    print(f"{path.name}: {path.stat().st_size} bytes")


def main() -> None:
    """Twelve epochs of ten seasons."""
    mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("shard",))
    rank = mesh.get_rank()
    folder = Path(tempfile.mkdtemp())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1, 13):
        for number in range(10):
            weather, yields = season(number, rank)
            loss = (model(weather) - yields).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 4 == 0:
            if rank == 0:
                save_weights(model, folder / f"epoch{epoch}.pt")
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
