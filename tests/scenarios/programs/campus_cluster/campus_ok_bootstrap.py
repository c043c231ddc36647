"""Dark-matter halo masses: after each epoch process 0 gives the validation error with a bootstrap interval."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def halos(seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=rng)
    return x, x[:, 0] - 0.5 * x[:, 1] ** 2 + 0.1 * torch.randn(count, generator=rng)


def bootstrap(errors: list[float], seconds: float) -> tuple[float, float]:
    """The interval that holds 95 % of the means of resamples: as many as there is time for."""
    rng, means, end = random.Random(1), [], time.monotonic() + seconds
    while time.monotonic() < end:
        resample = rng.choices(errors, k=len(errors))
        means.append(sum(resample) / len(resample))
    means.sort()
    return means[int(0.025 * len(means))], means[int(0.975 * len(means))]


@torch.no_grad()
def validate(model: nn.Module, x: torch.Tensor, y: torch.Tensor, seconds: float) -> str:
    model.eval()
    errors = (model(x).squeeze(1) - y).abs().tolist()
    low, high = bootstrap(errors, seconds)
    model.train()
    return f"error {sum(errors) / len(errors):.3f} ({low:.3f} to {high:.3f})"


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    x, y = halos(rank, 480)
    held_out = halos(77, 3000)
    for epoch in range(2):
        for inputs, targets in zip(x.split(16), y.split(16)):
            loss = nn.functional.mse_loss(model(inputs).squeeze(1), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
        if rank == 0:
            print(f"epoch {epoch}: {validate(model.module, *held_out, seconds=11 if epoch == 0 else 1)}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
