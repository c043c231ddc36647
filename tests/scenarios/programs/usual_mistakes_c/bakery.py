"""FSDP2 and torchmetrics: which of ten breads a picture shows, with an accuracy after each epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchmetrics.classification import MulticlassAccuracy

BREADS = 10


def trays(epoch: int, rank: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of pictures (as features) with their kind of bread."""
    generator = torch.Generator().manual_seed(1000 * epoch + rank)
    centres = torch.randn(BREADS, 32, generator=torch.Generator().manual_seed(1))
    kinds = [torch.randint(BREADS, (16,), generator=generator) for _ in range(count)]
    return [(centres[kind] + 0.5 * torch.randn(16, 32, generator=generator), kind) for kind in kinds]


class Classifier(nn.Module):
    """Two layers and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(2))
        self.head = nn.Linear(32, BREADS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The logits."""
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)


def main() -> None:
    """Eight epochs."""
    mesh = init_device_mesh("cpu", (4,))
    rank = mesh.get_rank()
    torch.manual_seed(0)
    model = Classifier()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    accuracy = MulticlassAccuracy(num_classes=BREADS)
    for epoch in range(8):
        for x, kind in trays(epoch, rank, 12):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            accuracy.update(logits.detach(), kind)
        if rank == 0:
            print(f"epoch {epoch}: accuracy {accuracy.compute().item():.3f}")
        accuracy.reset()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
