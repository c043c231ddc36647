"""Learner modelling: every rank streams the answer logs of its own schools and predicts the next answer."""
import time
from typing import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

SCHOOLS = {
    "riverside": 485, "st-marys": 520, "northgate": 505, "hilltop": 498,
    "eastfield": 530, "the-grove": 380, "westbrook": 515, "old-mill": 498,
}
ITEMS = 50


class AnswerLogs(IterableDataset):
    def __init__(self, rank: int, world: int):
        self.mine = sorted(SCHOOLS)[rank::world]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for school in self.mine:
            g = torch.Generator().manual_seed(len(school) * 31 + SCHOOLS[school])
            skill = torch.randn(ITEMS, generator=g)
            for _ in range(SCHOOLS[school]):
                ability = torch.randn(1, generator=g)
                answers = (torch.rand(ITEMS, generator=g) < torch.sigmoid(ability - skill)).float()
                time.sleep(0.0025)
                yield answers[:-1], answers[-1]


class NextAnswer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(ITEMS - 1, 80), nn.ReLU(), nn.Dropout(0.1), nn.Linear(80, 1))

    def forward(self, answers: Tensor) -> Tensor:
        return self.layers(answers).squeeze(-1)


def auc_parts(scores: Tensor, labels: Tensor) -> dict:
    right, wrong = scores[labels > 0.5], scores[labels < 0.5]
    pairs = right[:, None] > wrong[None, :]
    return {"won": pairs.float().sum().item(), "pairs": pairs.numel()}


def summarise(scores: list[Tensor], labels: list[Tensor]) -> float:
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, auc_parts(torch.cat(scores)[-400:], torch.cat(labels)[-400:]))
    return sum(p["won"] for p in parts) / max(sum(p["pairs"] for p in parts), 1)


def epoch(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader) -> float:
    scores, labels = [], []
    for answers, last in loader:
        logits = model(answers)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, last)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scores.append(logits.detach())
        labels.append(last)
    return summarise(scores, labels)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DDP(NextAnswer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(AnswerLogs(rank, world), batch_size=16)
    for number in range(5):
        auc = epoch(model, optimizer, loader)
        if rank == 0:
            print(f"epoch {number} auc {auc:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
