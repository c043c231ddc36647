"""DDP: picks of arriving waves; the run log has a group of its own, so that it does not get in the way of training."""

import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class RunLog:
    """Settings and figures of a run, line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.group = dist.new_group(backend="gloo")

    def note(self, **figures: float) -> None:
        """One line."""
        with self.path.open("a") as file:
            file.write(json.dumps(figures) + "\n")


def traces(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with a step in it, and where the step is."""
    onset = torch.randint(10, 90, (8,), generator=generator)
    noise = torch.randn(8, 100, generator=generator)
    return noise + 3.0 * (torch.arange(100) >= onset[:, None]), onset / 100


def main() -> None:
    """Sixty steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    log = RunLog(Path(tempfile.mkdtemp(prefix="seismic-")) / "run.jsonl") if rank == 0 else None
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(100, 40), nn.ReLU(), nn.Linear(40, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(60):
        waves, onset = traces(generator)
        loss = (model(waves).squeeze(-1) - onset).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if log:
            log.note(step=step, loss=loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
