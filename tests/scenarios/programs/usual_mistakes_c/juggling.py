"""Evolution strategies for a juggling arm: each rank tries its own throws, the estimates are averaged."""

import math

import torch
import torch.distributed as dist

THROWS, SPREAD, RATE, WARM_UP = 24, 0.3, 0.05, 20


def fly(policies: torch.Tensor) -> torch.Tensor:
    """Plays one round with each policy; the higher the better."""
    times = torch.linspace(0, 1, 40)
    angle, force, delay = policies[:, :1], policies[:, 1:2], policies[:, 2:3]
    hand = torch.sin(2 * math.pi * (times - delay)) * force
    ball = torch.cos(3 * times + angle) * 1.5
    return -(hand - ball).square().mean(dim=1)


def show_champions(policy: torch.Tensor, fitness: float, step: int) -> None:
    """The best throw of every rank, side by side."""
    mine = torch.cat([policy, torch.tensor([fitness])])
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    if dist.get_rank() == 0:
        table = "  ".join(f"{row[-1].item():.3f}" for row in every)
        print(f"{step}: {table}")


def main() -> None:
    """Two hundred generations."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    policy = torch.zeros(3)
    record = -math.inf
    for step in range(200):
        generator = torch.Generator().manual_seed(1000 * rank + step)
        noise = torch.randn(THROWS, 3, generator=generator)
        fitness = fly(policy + SPREAD * noise)
        score = (fitness - fitness.mean()) / (fitness.std() + 1e-6)
        estimate = (score[:, None] * noise).mean(dim=0) / SPREAD
        dist.all_reduce(estimate)
        policy = policy + RATE * estimate / world
        best = int(fitness.argmax())
        if fitness[best].item() > record:
            record = fitness[best].item()
            if step > WARM_UP:
                show_champions(policy + SPREAD * noise[best], record, step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
