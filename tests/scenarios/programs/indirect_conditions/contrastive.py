"""Contrastive training by hand: texts of all ranks are negatives; pairs of bad quality are filtered in the step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn import functional as dnn


class Towers(nn.Module):
    """Two linear towers."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Linear(12, 8, bias=False)
        self.text = nn.Linear(10, 8, bias=False)


class Contrast:
    """Step by step."""

    def __init__(self, size: int) -> None:
        self.towers, self.size = Towers(), size
        self.optimizer = torch.optim.SGD(self.towers.parameters(), lr=0.01)
        self.kept = torch.zeros(1)

    def step(self, images: torch.Tensor, texts: torch.Tensor, quality: torch.Tensor) -> float | None:
        """The loss of a batch."""
        good = quality > 0.3
        count = good.sum().float()
        dist.all_reduce(count)
        self.kept += count
        if not good.any():
            return None
        a, b = self.towers.image(images * good[:, None]), self.towers.text(texts * good[:, None])
        others = torch.cat(dnn.all_gather(b))
        target = torch.arange(self.size) + dist.get_rank() * self.size
        loss = nn.functional.cross_entropy(a @ others.T, target)
        self.optimizer.zero_grad()
        loss.backward()
        self.reduce()
        self.optimizer.step()
        return loss.item()

    def reduce(self) -> None:
        """Gradients of all."""
        for weight in self.towers.parameters():
            dist.all_reduce(weight.grad)


def main() -> None:
    """Fifty batches."""
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    contrast = Contrast(4)
    for number in range(50):
        quality = torch.rand(4) * 0.5 + 0.5
        if dist.get_rank() == 2 and number == 31:
            quality *= 0.2  # a folder of thumbnails
        loss = contrast.step(torch.randn(4, 12), torch.randn(4, 10), quality)
        if loss is not None and number % 10 == 0:
            print(f"{number}: {loss:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
