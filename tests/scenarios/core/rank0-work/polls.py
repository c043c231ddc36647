"""DDP: turnout of an election by district; the last thing is a table with intervals."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

QUESTIONS, DISTRICTS, DRAWS = 18, 40, 4000


def poll(seed: int, people: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Answers, and who went to vote."""
    generator = torch.Generator().manual_seed(seed)
    answers = torch.randn(people, QUESTIONS, generator=generator)
    return answers, (answers[:, 0] + 0.5 * answers[:, 1] > 0).float()


def draw(rng: random.Random, rows: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """As many as there are, with replacement."""
    return [rows[rng.randrange(len(rows))] for _ in rows]


def quality(rows: list[tuple[float, float]]) -> float:
    """Share of pairs of a voter and a non-voter that are in order, by ranks."""
    ordered = sorted(rows)
    places = [place for place, (_, voted) in enumerate(ordered, 1) if voted]
    others = len(rows) - len(places)
    return (sum(places) - len(places) * (len(places) + 1) / 2) / max(1, len(places) * others)


def interval(rng: random.Random, rows: list[tuple[float, float]]) -> tuple[float, float]:
    """Nine of ten draws lie within."""
    values = sorted(quality(draw(rng, rows)) for _ in range(DRAWS))
    return values[DRAWS // 20], values[-DRAWS // 20]


def report(network: nn.Module) -> None:
    """A line for each district."""
    rng = random.Random(0)
    for district in range(DISTRICTS):
        answers, voted = poll(5000 + district, 1500)
        with torch.no_grad():
            rows = list(zip(network(answers).squeeze(1).tolist(), voted.tolist(), strict=True))
        low, high = interval(rng, rows)
        print(f"district {district}: {quality(rows):.3f} ({low:.3f} to {high:.3f})", flush=True)


def main() -> None:
    """Eighty steps, then the table."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(QUESTIONS, 24), nn.ReLU(), nn.Linear(24, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(80):
        answers, voted = poll(1000 * rank + step, 64)
        loss = nn.functional.binary_cross_entropy_with_logits(model(answers).squeeze(1), voted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        report(network)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
