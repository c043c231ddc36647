"""Basket sizes of a retail chain, on spot machines: each rank keeps a state file, and goes on from it after an interruption."""

import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TOTAL_STEPS = 420
SAVE_EVERY = 70


class StateFile:
    """The rank's progress. Ranks write at different steps, so that the file server is not hit by all at once."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.path = folder / f"progress-{rank}.json"
        self.offset = 25 * rank

    def due(self, step: int) -> bool:
        return (step + self.offset) % SAVE_EVERY == 0

    def save(self, step: int) -> None:
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps({"step": step}))
        partial.replace(self.path)

    def load(self) -> int:
        return json.loads(self.path.read_text())["step"] if self.path.exists() else 0


class Baskets:
    def __init__(self, rank: int) -> None:
        self.generator = torch.Generator().manual_seed(500 + rank)

    def __call__(self, size: int = 192) -> tuple[torch.Tensor, torch.Tensor]:
        customers = torch.randn(size, 40, generator=self.generator)
        return customers, customers[:, :8].clamp(min=0).sum(dim=1)


def fit(model: nn.Module, optimizer: torch.optim.Optimizer, baskets: Baskets, state: StateFile, until: int) -> float:
    """Trains from where the state file says up to the given step."""
    mean = 0.0
    for step in range(state.load() + 1, until + 1):
        customers, sizes = baskets()
        loss = nn.functional.mse_loss(model(customers).squeeze(-1), sizes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = 0.98 * mean + 0.02 * loss.item()
        if state.due(step):
            state.save(step)
    return mean


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(6)
    model = DDP(nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)))
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir()) / f"baskets-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    state, baskets = StateFile(folder, rank), Baskets(rank)
    state.path.unlink(missing_ok=True)
    # The first machine is taken away after 120 steps.
    fit(*build(), baskets, state, until=120)
    dist.barrier()
    print(f"rank {rank} goes on from step {state.load()}", flush=True)
    mean = fit(*build(), baskets, state, until=TOTAL_STEPS)
    means = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(means, torch.tensor([mean]))
    print(f"done, {torch.cat(means).mean():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
