"""Training with a validation after each epoch; a model that got better is compared over the ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def validate(model: torch.nn.Module, epoch: int) -> float:
    """The error on the rank's own part of the validation set."""
    rank = dist.get_rank()
    with torch.no_grad():
        error = float(model(torch.ones(4, 5)).abs().mean())
    return 1.0 / (epoch + 1) + 0 * error if not (rank == 0 and epoch == 2) else 2.0


def compare(model: torch.nn.Module) -> float:
    """How far the ranks' weights are apart."""
    norm = torch.cat([p.detach().flatten() for p in model.parameters()]).norm()
    norms = [torch.zeros_like(norm) for _ in range(dist.get_world_size())]
    dist.all_gather(norms, norm)
    return float(max(norms) - min(norms))


def main() -> None:
    """Five epochs of eight steps."""
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(5, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    best = float("inf")
    for epoch in range(5):
        model.train()
        for _ in range(8):
            loss = model(torch.randn(6, 5)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        error = validate(model.module, epoch)
        if error < best:
            best = error
            print(f"epoch {epoch}: {error:.3f}, apart by {compare(model):.2e}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
