"""FSDP2: prices of antiques; furniture and porcelain have an expert each between a common stem and head."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WIDTH = 36
AUCTIONS = ["mixed", "mixed", "house clearance", "mixed", "porcelain week", "mixed", "estate"]


class Appraiser(nn.Module):
    """Stem, the expert for each lot, head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, lots: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        """Logits over the price classes."""
        x = self.stem(lots).relu()
        seen = torch.zeros_like(x)
        for kind, expert in enumerate(self.experts):
            chosen = (kinds == kind).nonzero().squeeze(1)
            if len(chosen) > 0:
                seen = seen.index_add(0, chosen, expert(x[chosen]))
        return self.head(x + seen.relu())


def catalogue(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The lots of one auction, with their kind and price class."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    lots = torch.randn(12, WIDTH, generator=generator)
    auction = AUCTIONS[(step * 3 + rank * 11) % len(AUCTIONS)] if step > 20 else "mixed"
    kinds = torch.ones(12, dtype=torch.long) if auction == "porcelain week" else torch.arange(12) % 2
    return lots, kinds, lots[:, :4].argmax(dim=1) + 4 * kinds


def main() -> None:
    """A hundred and twenty auctions."""
    mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("shard",))
    rank = mesh.get_rank()
    torch.manual_seed(0)
    model = Appraiser()
    for part in (model.stem, *model.experts, model.head):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(120):
        lots, kinds, prices = catalogue(step, rank)
        loss = nn.functional.cross_entropy(model(lots, kinds), prices)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"{step}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
