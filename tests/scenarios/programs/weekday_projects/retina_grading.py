"""Grades retina images in five levels with DDP and prints a confusion matrix after each epoch."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

GRADES = 5


class ConfusionMatrix:
    def __init__(self, classes: int) -> None:
        self.counts = torch.zeros(classes, classes)

    def update(self, logits: torch.Tensor, labels: torch.Tensor) -> None:
        for guess, label in zip(logits.argmax(1), labels, strict=True):
            self.counts[label, guess] += 1

    def summary(self) -> str:
        total = self.counts.clone()
        dist.all_reduce(total)
        kappa = total.diag().sum() / total.sum()
        return f"agreement {kappa.item():.3f} over {int(total.sum())} images"


def build_model() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(16, GRADES),
    )


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(7)
    images = TensorDataset(torch.randn(96, 3, 16, 16), torch.randint(GRADES, (96,)))
    sampler = DistributedSampler(images)
    loader = DataLoader(images, batch_size=8, sampler=sampler)
    model = DDP(build_model())
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        matrix = ConfusionMatrix(GRADES)
        for pixels, labels in loader:
            logits = model(pixels)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            matrix.update(logits.detach(), labels)
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch}:", matrix.summary(), flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
