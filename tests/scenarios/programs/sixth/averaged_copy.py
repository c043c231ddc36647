"""Three ranks train, the fourth keeps a moving average of their weights and evaluates it."""

import torch
import torch.distributed as dist
from torch import nn

KEEPER = 3


def flat(model: nn.Module) -> torch.Tensor:
    """All weights in one vector."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def keep(model: nn.Module, rounds: int) -> None:
    """The average, and how it does."""
    average = flat(model)
    for number in range(rounds):
        weights = torch.empty_like(average)
        dist.broadcast(weights, src=0)
        average.lerp_(weights, 0.1)
        print(f"round {number}: norm {average.norm().item():.4f}")


def train(model: nn.Module, rounds: int) -> None:
    """Twenty steps a round, gradients averaged among the three."""
    group = dist.new_group([r for r in range(dist.get_world_size()) if r != KEEPER])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(rounds):
        for _ in range(20):
            x = torch.randn(16, 10)
            loss = (model(x).squeeze(1) - x.sum(dim=1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad, group=group)
                p.grad /= 3
            optimizer.step()
        dist.broadcast(flat(model), src=0)


def main() -> None:
    """Five rounds."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    if dist.get_rank() == KEEPER:
        keep(model, rounds=5)
    else:
        train(model, rounds=5)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
