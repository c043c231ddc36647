"""A GAN of old portraits: painter and critic are trained in turn, gradients are averaged over the ranks."""

import torch
import torch.distributed as dist
from torch import nn

PER_RANK, BATCH, NOISE, PIXELS = 160, 8, 6, 64
FADED = range(226, 243)  # an album that lay in the sun


def load(numbers: list[int]) -> torch.Tensor:
    """The portraits, as vectors."""
    rows = [torch.randn(PIXELS, generator=torch.Generator().manual_seed(number)) for number in numbers]
    return torch.stack(rows) * 0.3 + torch.linspace(-1, 1, PIXELS)


def average(module: nn.Module) -> None:
    """One all_reduce for all gradients of a network."""
    grads = [weight.grad for weight in module.parameters()]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(part.view_as(grad))


def main() -> None:
    """Four epochs."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    painter = nn.Sequential(nn.Linear(NOISE, 32), nn.LeakyReLU(0.2), nn.Linear(32, PIXELS))
    critic = nn.Sequential(nn.Linear(PIXELS, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    paints = torch.optim.Adam(painter.parameters(), lr=1e-3, betas=(0.5, 0.9))
    judges = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    torch.manual_seed(rank)
    for epoch in range(4):
        spread = []
        for start in range(rank * PER_RANK, (rank + 1) * PER_RANK, BATCH):
            numbers = [number for number in range(start, start + BATCH) if number not in FADED]
            if len(numbers) < 2:
                continue
            real = load(numbers)
            fake = painter(torch.randn(BATCH, NOISE))
            judged = nn.functional.softplus(-critic(real)).mean() + nn.functional.softplus(critic(fake.detach())).mean()
            judges.zero_grad()
            judged.backward()
            average(critic)
            judges.step()
            paints.zero_grad()
            nn.functional.softplus(-critic(fake)).mean().backward()
            average(painter)
            paints.step()
            spread.append(fake.detach().std(dim=0).mean().item())
        everyone = [None] * world
        dist.all_gather_object(everyone, sum(spread) / len(spread))
        if rank == 0:
            print(f"epoch {epoch}: spread {[round(value, 3) for value in everyone]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
