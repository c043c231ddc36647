"""Camera traps: a classifier for the animals of a nature reserve, with a report for each species."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torchmetrics.aggregation import MeanMetric

SPECIES = ("badger", "deer", "fox", "lynx")
# Which animals each group of cameras has seen, by the rangers' list.
CAMERAS = {0: ("badger", "deer", "fox", "lynx"), 1: ("deer", "fox", "lynx", "badger"), 2: ("fox", "badger", "deer")}


class Report:
    """The recall of each species, over all cameras."""

    def __init__(self) -> None:
        self.recall = {name: MeanMetric() for name in SPECIES}

    def update(self, scores: torch.Tensor, labels: torch.Tensor) -> None:
        hits = (scores.argmax(1) == labels).float()
        for index, name in enumerate(SPECIES):
            of_species = hits[labels == index]
            if len(of_species):
                self.recall[name].update(of_species)

    def compute(self) -> dict[str, float]:
        table = {}
        for name, metric in self.recall.items():
            if metric.update_called:  # there is no mean of nothing
                table[name] = metric.compute().item()
            metric.reset()
        return table


class TrapImages(torch.utils.data.IterableDataset):
    def __init__(self, cameras: tuple[str, ...], batches: int, seed: int) -> None:
        self.classes = torch.tensor([SPECIES.index(name) for name in cameras])
        self.batches, self.seed = batches, seed

    def __iter__(self):
        rng = torch.Generator().manual_seed(self.seed)
        for _ in range(self.batches):
            labels = self.classes[torch.randint(0, len(self.classes), (16,), generator=rng)]
            yield torch.randn(16, 10, generator=rng) + 0.5 * labels.unsqueeze(1), labels


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, len(SPECIES))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    report = Report()
    for epoch in range(12):
        for images, labels in TrapImages(CAMERAS[rank], 30, seed=10 * epoch + rank):
            scores = model(images)
            optimizer.zero_grad()
            nn.functional.cross_entropy(scores, labels).backward()
            optimizer.step()
            report.update(scores.detach(), labels)
            time.sleep(0.05)
        table = report.compute()
        if rank == 0:
            print(f"epoch {epoch}: " + ", ".join(f"{k} {v:.2f}" for k, v in table.items()), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
