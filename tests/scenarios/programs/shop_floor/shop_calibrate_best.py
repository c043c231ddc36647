"""Credit scores. When a rank's own validation improves, the thresholds of all branches are calibrated again."""

import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Branch:
    """One bank branch: its validation set. ``tilt`` says how its customers differ from the average."""

    number: int
    tilt: float
    x: torch.Tensor = field(init=False)
    y: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.number)
        self.x = torch.randn(200, 10, generator=generator)
        self.y = self.x.sum(1) * self.tilt


class Callback:
    def on_epoch_end(self, epoch: int, model: nn.Module) -> None: ...


class Calibration(Callback):
    """Keeps thresholds that fit the best model so far."""

    def __init__(self, branch: Branch, tolerance: float = 1e-3) -> None:
        self.branch, self.tolerance = branch, tolerance
        self.best = float("inf")
        self.thresholds: list[float] = []

    @torch.no_grad()
    def on_epoch_end(self, epoch: int, model: nn.Module) -> None:
        scores = model(self.branch.x).squeeze(1)
        error = (scores - self.branch.y).square().mean().item()
        if self.best - error > self.tolerance:
            self.best = error
            self.calibrate(scores)

    def calibrate(self, scores: torch.Tensor) -> None:
        mine = scores.quantile(torch.tensor([0.1, 0.5, 0.9]))
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, mine)
        self.thresholds = torch.stack(parts).mean(0).tolist()


class Progress(Callback):
    def on_epoch_end(self, epoch: int, model: nn.Module) -> None:
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: |w| = {model.weight.norm().item():.3f}", flush=True)


def fit(callbacks: list[Callback], epochs: int) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(10, 1)
    nn.init.zeros_(linear.weight)
    model = DDP(linear)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.004)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for epoch in range(1, epochs + 1):
        for _ in range(15):
            x = torch.randn(64, 10, generator=generator)
            loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
        for callback in callbacks:
            callback.on_epoch_end(epoch, linear)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    branch = Branch(rank, tilt=(1.0, 0.55, 0.95, 1.05)[rank])
    fit([Progress(), Calibration(branch)], epochs=40)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
