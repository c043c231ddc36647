"""Bag of words over reviews; accuracy and F1 with torchmetrics."""

import random

import torch
import torch.distributed as dist
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

VOCABULARY = 200


class Reviews(Dataset):
    def __init__(self, n):
        rng = random.Random(3)
        self.items = [([rng.randrange(VOCABULARY) for _ in range(12)], rng.randrange(3)) for _ in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        words, stars = self.items[i]
        return torch.tensor(words), torch.tensor(stars)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(VOCABULARY, 32)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.words(x))


dist.init_process_group(backend="gloo")
rank = dist.get_rank()
dataset = Reviews(384)
sampler = DistributedSampler(dataset, drop_last=True)
loader = DataLoader(dataset, batch_size=16, sampler=sampler)
model = nn.parallel.DistributedDataParallel(Classifier())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
metrics = torchmetrics.MetricCollection(
    {
        "acc": torchmetrics.classification.MulticlassAccuracy(num_classes=3),
        "f1": torchmetrics.classification.MulticlassF1Score(num_classes=3),
    }
)

for epoch in range(4):
    sampler.set_epoch(epoch)
    for words, stars in loader:
        logits = model(words)
        loss = nn.functional.cross_entropy(logits, stars)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metrics.update(logits.detach(), stars)
    if rank == 0:
        summary = {name: round(value.item(), 3) for name, value in metrics.compute().items()}
        print(f"epoch {epoch} {summary}", flush=True)
    metrics.reset()

dist.destroy_process_group()
