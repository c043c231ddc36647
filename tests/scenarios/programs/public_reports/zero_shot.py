"""Contrastive training of two encoders; the master classifies by prompts after every epoch."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CLASSES = 6


class Clip(nn.Module):
    """Images and texts in one space."""

    def __init__(self) -> None:
        super().__init__()
        self.visual = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.image_head = nn.Linear(32, 16)
        self.text = nn.EmbeddingBag(50, 16)

    def forward(self, images: torch.Tensor, texts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Normalized features of both."""
        image_features = nn.functional.normalize(self.image_head(self.visual(images)), dim=-1)
        return image_features, nn.functional.normalize(self.text(texts), dim=-1)


def is_master() -> bool:
    """The rank that evaluates and logs."""
    return int(os.environ["RANK"]) == 0


def zero_shot_eval(model: nn.Module, prompts: torch.Tensor) -> float:
    """Share of images whose nearest prompt is that of their class."""
    right = 0
    with torch.no_grad():
        for _ in range(4):
            labels = torch.randint(CLASSES, (CLASSES,))
            image_features, text_features = model(torch.randn(CLASSES, 3, 16, 16), prompts)
            right += int(((image_features @ text_features.T).argmax(-1) == labels).sum())
    return right / (4 * CLASSES)


def evaluate(model: nn.Module, prompts: torch.Tensor) -> dict[str, float]:
    """Metrics of an epoch."""
    metrics: dict[str, float] = {}
    if not is_master():
        return metrics
    model.eval()
    metrics["zero-shot"] = zero_shot_eval(model, prompts)
    model.train()
    return metrics


def main() -> None:
    """Six epochs."""
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DDP(Clip())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    prompts = torch.randint(50, (CLASSES, 5))
    for epoch in range(6):
        for _ in range(15):
            features, words = model(torch.randn(8, 3, 16, 16), torch.randint(50, (8, 5)))
            loss = nn.functional.cross_entropy(features @ words.T * 10, torch.arange(8))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        metrics = evaluate(model, prompts)
        dist.barrier()
        if is_master():
            print(epoch, metrics, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
