"""A quiz with two players and a master: answers are collected as objects, some questions take long to think about."""

import random
import time

import torch
import torch.distributed as dist

QUESTIONS = 30


def think(knowledge: torch.Tensor, question: int, rank: int) -> dict:
    """An answer, and how it was come by."""
    rng = random.Random(100 * question + rank)
    if question % 10 == 4 + rank:
        time.sleep(2.5)
    guesses = [rng.randrange(4) for _ in range(rng.randrange(1, 9))]
    weights = [knowledge[guess].item() for guess in guesses]
    return {"player": rank, "answer": guesses[weights.index(max(weights))], "guesses": guesses}


def judge(knowledge: torch.Tensor, answers: list[dict], question: int) -> torch.Tensor:
    """What is right is made more likely."""
    right = question * 3 % 4
    for answer in answers:
        knowledge[answer["answer"]] += 0.1 if answer["answer"] == right else -0.05
    return knowledge


def main() -> None:
    """Thirty questions."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    knowledge = torch.zeros(4)
    for question in range(QUESTIONS):
        answer = None if rank == 0 else think(knowledge, question, rank)
        answers = [None] * world if rank == 0 else None
        dist.gather_object(answer, answers, dst=0)
        if rank == 0:
            knowledge = judge(knowledge, answers[1:], question)
            print(f"{question}: {[given['answer'] for given in answers[1:]]}")
        dist.broadcast(knowledge, src=0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
