"""Text and images by two towers; gradients are averaged by hand, loss by loss, without a wrapper."""

import torch
import torch.distributed as dist
from torch import nn


class TwoTowers(nn.Module):
    """A tower for each kind of input, and a common end."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.head, self.vision = nn.Linear(8, 8), nn.Linear(8, 1), nn.Linear(12, 8)

    def forward(self, text: torch.Tensor, images: torch.Tensor | None) -> torch.Tensor:
        """One number for a sample."""
        x = self.text(text)
        if images is not None:
            x = x + self.vision(images)
        return self.head(torch.tanh(x))


def average_gradients(model: nn.Module) -> None:
    """The mean over all ranks, in place."""
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Four samples; most documents have pictures."""
    text = torch.randn(4, 8)
    plain = step % 13 == 12 and rank == 1
    return text, None if plain else torch.randn(4, 12)


def main() -> None:
    """Sixty steps."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = TwoTowers()
    torch.manual_seed(rank + 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(60):
        optimizer.zero_grad()
        text, images = batch(rank, step)
        loss = model(text, images).square().mean()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        losses = [torch.zeros(()) for _ in range(world)]
        dist.all_gather(losses, loss.detach())
        if rank == 0 and step % 20 == 0:
            print(f"{step}: {sum(losses).item() / world:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
