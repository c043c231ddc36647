"""Old postcards get their colours back: a small convolutional network under DDP, with previews as it learns."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def cards(count: int, seed: int) -> torch.Tensor:
    """Pictures of 16 by 16 in three colours."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, 16, 16, generator=generator)


def network() -> nn.Module:
    """Grey in, colours out."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 3, 3, padding=1),
        nn.Sigmoid(),
    )


@torch.no_grad()
def draw_previews(model: nn.Module, grey: torch.Tensor, path: Path) -> None:
    """The same twelve cards each time, four at once."""
    model.eval()
    rows = [model(part) for part in grey.split(4)]
    model.train()
    path.write_bytes((torch.cat(rows) * 255).to(torch.uint8).numpy().tobytes())


def main() -> None:
    """A hundred and fifty steps, previews every thirty."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    colours, shown = cards(64, seed=rank), cards(12, seed=99)
    folder = Path(tempfile.mkdtemp(prefix="postcards-")) if rank == 0 else None
    for step in range(1, 151):
        batch = colours[torch.randint(0, len(colours), (8,))]
        loss = nn.functional.l1_loss(model(batch.mean(1, keepdim=True)), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if folder and step % 30 == 0:
            draw_previews(model, shown.mean(1, keepdim=True), folder / f"step{step}.raw")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
