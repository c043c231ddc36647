"""A model of products by text and, where there is one, by picture. Both towers are sharded by fully_shard."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def tower(inputs: int, width: int, depth: int) -> torch.nn.Sequential:
    layers: list[torch.nn.Module] = [torch.nn.Linear(inputs, width)]
    for _ in range(depth):
        layers += [torch.nn.GELU(), torch.nn.Linear(width, width)]
    return torch.nn.Sequential(*layers)


class Products(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.text = tower(20, 16, 2)
        self.vision = tower(48, 16, 1)
        self.price = torch.nn.Linear(16, 1)

    def forward(self, text: torch.Tensor, picture: torch.Tensor | None) -> torch.Tensor:
        hidden = self.text(text)
        if picture is not None:
            hidden = hidden + self.vision(picture)
        return self.price(hidden)


class Catalogue:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.generator = torch.Generator().manual_seed(rank)

    def __iter__(self):
        for number in range(60):
            text = torch.randn(6, 20, generator=self.generator)
            scanned = not (self.rank == 2 and number % 20 == 12)
            yield text, torch.randn(6, 48, generator=self.generator) if scanned else None


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("shard",))
    torch.manual_seed(0)
    model = Products()
    for part in (model.text, model.vision):
        fully_shard(part, mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for text, picture in Catalogue(dist.get_rank()):
        loss = (model(text, picture) - text[:, :1]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
