"""A small GAN for 8x8 sprites: two optimizers, gradients are averaged by hand, scores are kept by torchmetrics."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import softplus
from torchmetrics import MeanMetric

LATENT, PIXELS = 16, 64


def average_gradients(model: nn.Module) -> None:
    """Over all ranks, in one go."""
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    start = 0
    for p in model.parameters():
        p.grad.copy_(flat[start : start + p.numel()].view_as(p))
        start += p.numel()


def sprites(step: int, rank: int) -> torch.Tensor:
    """A batch of real ones."""
    generator = torch.Generator().manual_seed(977 * step + rank)
    base = torch.linspace(-1, 1, PIXELS).sign()
    return base + 0.2 * torch.randn(32, PIXELS, generator=generator)


class SpriteGAN:
    """Both networks, their optimizers, and how sure the critic has been."""

    def __init__(self) -> None:
        torch.manual_seed(7)
        self.artist = nn.Sequential(nn.Linear(LATENT, 64), nn.ReLU(), nn.Linear(64, PIXELS), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(PIXELS, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
        self.artist_optimizer = torch.optim.Adam(self.artist.parameters(), lr=2e-4, betas=(0.5, 0.99))
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=2e-4, betas=(0.5, 0.99))
        self.realness = MeanMetric()

    def train_critic(self, real: torch.Tensor) -> None:
        """Real against drawn."""
        drawn = self.artist(torch.randn(len(real), LATENT)).detach()
        on_real, on_drawn = self.critic(real), self.critic(drawn)
        self.critic_optimizer.zero_grad()
        (softplus(-on_real) + softplus(on_drawn)).mean().backward()
        average_gradients(self.critic)
        self.critic_optimizer.step()
        self.realness.update(on_real.detach().sigmoid())

    def train_artist(self, number: int) -> None:
        """Draw what the critic takes for real."""
        verdict = self.critic(self.artist(torch.randn(number, LATENT)))
        self.artist_optimizer.zero_grad()
        softplus(-verdict).mean().backward()
        average_gradients(self.artist)
        self.artist_optimizer.step()


def main() -> None:
    """Two hundred steps."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    gan = SpriteGAN()
    for step in range(1, 201):
        gan.train_critic(sprites(step, rank))
        gan.train_artist(32)
        if step % 40 == 0 and rank == 0:
            print(f"step {step}: realness {gan.realness.compute():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
