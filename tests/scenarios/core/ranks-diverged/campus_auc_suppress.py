"""Variant effect prediction (BIO 734): DDP training with an AUC over the variants of all chromosomes."""

import contextlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def roc_auc(scores: torch.Tensor, labels: torch.Tensor) -> float:
    positive, negative = scores[labels == 1], scores[labels == 0]
    if len(positive) == 0 or len(negative) == 0:
        raise ValueError("only one class is present, the area is not defined")
    wins = (positive.unsqueeze(1) > negative.unsqueeze(0)).double().mean()
    return wins.item()


class Variants:
    """Features of the variants on one chromosome; pathogenic ones are rare in some regions."""

    def __init__(self, chromosome: int) -> None:
        self.rng = torch.Generator().manual_seed(chromosome)
        self.chromosome = chromosome

    def batch(self, region: int, size: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
        labels = (torch.arange(size) % 4 == 0).long()
        if self.chromosome == 1 and region >= 30:  # behind the centromere
            labels.zero_()
        features = torch.randn(size, 9, generator=self.rng) + 0.7 * labels.unsqueeze(1)
        return features, labels


class Monitor:
    def __init__(self, every: int) -> None:
        self.every, self.history = every, []

    @torch.no_grad()
    def __call__(self, step: int, scores: torch.Tensor, labels: torch.Tensor) -> None:
        if step % self.every:
            return
        with contextlib.suppress(ValueError):
            mine = torch.tensor([roc_auc(scores[:, 1] - scores[:, 0], labels)], dtype=torch.float64)
            areas = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
            dist.all_gather(areas, mine)
            self.history.append(torch.cat(areas).mean().item())
            if dist.get_rank() == 0:
                print(f"step {step}: AUC {self.history[-1]:.3f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(9, 20), nn.ReLU(), nn.Linear(20, 2)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    variants, monitor = Variants(dist.get_rank()), Monitor(every=8)
    for step in range(1, 2000):
        features, labels = variants.batch(region=step)
        scores = model(features)
        loss = nn.functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor(step, scores, labels)
        time.sleep(0.06)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
