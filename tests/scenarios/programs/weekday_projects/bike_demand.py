"""Predicts the demand of bike stations. The best weights so far are shared after each validation."""

import copy

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def stations(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    hours = torch.rand(64, 5, generator=generator)
    return hours, hours.sum(1, keepdim=True) * (1 + rank)


class Best:
    """Keeps the weights with the lowest error."""

    def __init__(self) -> None:
        self.error = float("inf")
        self.weights: dict[str, torch.Tensor] = {}

    def offer(self, error: float, model: torch.nn.Module) -> bool:
        if error >= self.error:
            return False
        self.error = error
        self.weights = copy.deepcopy(model.state_dict())
        for tensor in self.weights.values():
            dist.broadcast(tensor, src=0)
        return True


def fit(model: DistributedDataParallel, rank: int) -> Best:
    best = Best()
    optimizer = torch.optim.SGD(model.parameters(), 0.02)
    inputs, targets = stations(rank)
    for epoch in range(30):
        model.train()
        for chunk, wanted in zip(inputs[:48].split(8), targets[:48].split(8), strict=True):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(chunk), wanted).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            error = torch.nn.functional.mse_loss(model.module(inputs[48:]), targets[48:]).item()
        if best.offer(error, model.module) and rank == 0:
            print(f"epoch {epoch}: best is now {error:.4f}", flush=True)
    return best


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(4)
    model = DistributedDataParallel(torch.nn.Linear(5, 1))
    best = fit(model, dist.get_rank())
    model.module.load_state_dict(best.weights)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
