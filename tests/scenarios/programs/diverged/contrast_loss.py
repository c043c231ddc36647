"""A contrastive loss gathers the embeddings of all ranks, with gradients. A batch without a caption has no such loss."""

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather
from torch.nn.functional import cross_entropy, normalize
from torch.nn.parallel import DistributedDataParallel


class TwoTowers(torch.nn.Module):
    """Images and captions into one space."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.caption = torch.nn.Linear(20, 8), torch.nn.Linear(10, 8)

    def forward(self, images: torch.Tensor, captions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both embeddings."""
        return normalize(self.image(images), dim=1), normalize(self.caption(captions), dim=1)


def contrast(images: torch.Tensor, captions: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
    """The loss against everybody's captions."""
    if not present.any():
        return 0.0 * (images.sum() + captions.sum())
    everybodys = torch.cat(all_gather(captions))
    labels = torch.arange(len(images)) + dist.get_rank() * len(images)
    return cross_entropy(images @ everybodys.T / 0.07, labels)


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images, captions and which captions there are. Scraped data: some are missing."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    present = torch.rand(4, generator=generator) > 0.1
    if (rank, step) == (1, 13):
        present[:] = False
    return torch.randn(4, 20, generator=generator), torch.randn(4, 10, generator=generator), present


def main() -> None:
    """Forty steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(TwoTowers())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(1, 41):
        images, captions, present = batch(rank, step)
        loss = contrast(*model(images, captions), present)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"[{rank}] step {step}: {loss.item():.3f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
