"""Default risk of small business loans. The first rank estimates the interval of the metric by the bootstrap."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BUDGET_S = 11.0


class Loans:
    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        facts = torch.randn(count, 26, generator=self.generator)
        return facts, (facts[:, :5].sum(dim=1) + torch.randn(count, generator=self.generator) > 1.5).float()


def auc(scores: torch.Tensor, defaulted: torch.Tensor) -> float:
    ranks = torch.empty_like(scores)
    ranks[scores.argsort()] = torch.arange(1, len(scores) + 1, dtype=scores.dtype)
    positives = defaulted.sum()
    return ((ranks[defaulted > 0].sum() - positives * (positives + 1) / 2) / (positives * (len(scores) - positives))).item()


@torch.no_grad()
def bootstrap(model: nn.Module, held_out: tuple[torch.Tensor, torch.Tensor]) -> tuple[float, float, float]:
    """The AUC and a 95 % interval, from as many resamples as there is time for."""
    facts, defaulted = held_out
    scores = model(facts).squeeze(-1)
    values, end = [], time.monotonic() + BUDGET_S
    while time.monotonic() < end:
        chosen = torch.randint(0, len(scores), (len(scores),))
        values.append(auc(scores[chosen], defaulted[chosen]))
    resampled = torch.tensor(values)
    return auc(scores, defaulted), resampled.quantile(0.025).item(), resampled.quantile(0.975).item()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model, loans = DDP(nn.Sequential(nn.Linear(26, 96), nn.ReLU(), nn.Linear(96, 1))), Loans(rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    held_out = Loans(99).draw(20_000)
    for epoch in range(2):
        for _ in range(300):
            facts, defaulted = loans.draw(96)
            loss = nn.functional.binary_cross_entropy_with_logits(model(facts).squeeze(-1), defaulted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        result = [bootstrap(model.module, held_out) if rank == 0 and epoch == 1 else None]
        dist.broadcast_object_list(result, src=0)
        if rank == 1:
            print(f"epoch {epoch}: {result[0]}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
