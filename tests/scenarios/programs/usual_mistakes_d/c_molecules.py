"""Solubility of molecules by an FSDP2 model; its whole weights go into a file after each epoch."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

FEATURES = 48


class Block(nn.Module):
    """A residual layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES)
        self.net = nn.Sequential(nn.Linear(FEATURES, 96), nn.GELU(), nn.Linear(96, FEATURES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """What it adds, added."""
        return x + self.net(self.norm(x))


def fingerprints(epoch: int, rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Six batches."""
    generator = torch.Generator().manual_seed(100 * epoch + rank)
    bits = torch.randint(0, 2, (6, 16, FEATURES), generator=generator).float()
    return [(b, b[:, :5].sum(dim=1, keepdim=True)) for b in bits]


def export(model: nn.Module, path: Path) -> None:
    """Everything in one file, for the web service."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=options)
    torch.save(weights, path)
    print(f"exported {path.name}: {sum(w.numel() for w in weights.values())} weights", flush=True)


def main() -> None:
    """Six epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.mkdtemp())
    torch.manual_seed(3)
    model = nn.Sequential(Block(), Block(), Block(), nn.Linear(FEATURES, 1))
    for block in model[:3]:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(6):
        for bits, solubility in fingerprints(epoch, rank):
            loss = (model(bits) - solubility).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            export(model, folder / f"epoch{epoch}.pt")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
