"""Distributed evaluation without padding: each rank scores its own questions and shares every score with the others."""

import torch
import torch.distributed as dist

QUESTIONS = 26


def score(model: torch.nn.Module, question: int) -> float:
    """A number between 0 and 1."""
    with torch.no_grad():
        return model(torch.full((1, 4), float(question))).sigmoid().item()


def evaluate(model: torch.nn.Module, rank: int, world: int) -> dict[int, float]:
    """All scores by question, on all ranks."""
    scores: dict[int, float] = {}
    for question in range(rank, QUESTIONS, world):
        pairs = [None] * world
        dist.all_gather_object(pairs, (question, score(model, question)))
        scores.update(pairs)
    return scores


def main() -> None:
    """Three models, the best is kept."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    best = 0.0
    for seed in range(3):
        torch.manual_seed(seed)
        model = torch.nn.Linear(4, 1)
        scores = evaluate(model, rank, world)
        result = torch.tensor([sum(scores.values()) / len(scores)])
        dist.broadcast(result, src=0)
        best = max(best, result.item())
        print(f"[{rank}] model {seed}: {result.item():.3f}, best {best:.3f}\n", end="", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
