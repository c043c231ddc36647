"""Distributed evaluation: readers' questions are answered from a shelf of abstracts, and the answers are collected."""

import torch
import torch.distributed as dist
from torch import nn

QUESTIONS, SHELF, AT_A_TIME = 62, 60, 5


class Encoder(nn.Module):
    """Questions and abstracts in one space."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(40, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Unit vectors."""
        return nn.functional.normalize(self.body(x), dim=-1)


@torch.no_grad()
def answer(model: Encoder, shelf: torch.Tensor, questions: list[int]) -> list[dict]:
    """The nearest abstract for each question."""
    rows = [torch.randn(40, generator=torch.Generator().manual_seed(number)) for number in questions]
    scores = model(torch.stack(rows)) @ shelf.T
    best = scores.max(dim=1)
    found = zip(questions, best.indices.tolist(), best.values.tolist(), strict=True)
    return [{"question": q, "abstract": a, "score": round(s, 3)} for q, a, s in found]


def evaluate(model: Encoder, shelf: torch.Tensor) -> list[dict]:
    """The answers of all ranks."""
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = list(range(QUESTIONS))[rank::world]
    collected: list[dict] = []
    for start in range(0, len(mine), AT_A_TIME):
        answers = answer(model, shelf, mine[start : start + AT_A_TIME])
        parts: list = [None] * world
        dist.all_gather_object(parts, answers)
        for part in parts:
            collected.extend(part)
    dist.barrier()
    return collected


def main() -> None:
    """Evaluates three encoders, one after the other."""
    dist.init_process_group("gloo")
    abstracts = torch.randn(SHELF, 40, generator=torch.Generator().manual_seed(99))
    for seed in range(3):
        torch.manual_seed(seed)
        model = Encoder().eval()
        with torch.no_grad():
            shelf = model(abstracts)
        answers = evaluate(model, shelf)
        if dist.get_rank() == 0:
            mean = sum(item["score"] for item in answers) / len(answers)
            print(f"encoder {seed}: {len(answers)} answers, mean score {mean:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
