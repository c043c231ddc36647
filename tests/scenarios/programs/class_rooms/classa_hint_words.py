"""Rollouts of a hint writer whose output matrix is spread over the ranks (one slice of the vocabulary each)."""
import random

import torch
import torch.distributed as dist
from torch import nn

VOCAB, WIDTH, GROUP = 2000, 96, 12
WORDS_BY_GRADE = {1: 10, 2: 14, 3: 18, 4: 22, 5: 26, 6: 30}


class SpreadHead(nn.Module):
    """Keeps VOCAB / world rows; the whole matrix exists only while it is used."""

    def __init__(self, rank, world):
        super().__init__()
        self.world = world
        torch.manual_seed(rank)
        self.rows = nn.Parameter(torch.randn(VOCAB // world, WIDTH) * 0.05, requires_grad=False)

    def forward(self, hidden):
        parts = [torch.empty_like(self.rows) for _ in range(self.world)]
        dist.all_gather(parts, self.rows.data)
        return hidden @ torch.cat(parts).T


class HintWriter(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.head = SpreadHead(rank, world)
        torch.manual_seed(99)
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.cell = nn.GRUCell(WIDTH, WIDTH)

    @torch.no_grad()
    def write(self, prompts, limits):
        state = self.words(prompts).mean(1)
        word = prompts[:, -1]
        hints = [[] for _ in limits]
        while any(len(hint) < limit for hint, limit in zip(hints, limits)):
            state = self.cell(self.words(word), state)
            word = self.head(state).argmax(1)
            for hint, limit, token in zip(hints, limits, word.tolist()):
                if len(hint) < limit:
                    hint.append(token)
        return hints


class Pupils:
    """Groups of pupils that ask for help; each rank serves one school."""

    def __init__(self, school):
        self.school = school

    def ask(self, visit):
        rng = random.Random(visit * 10 + self.school)
        grades = [rng.choice(range(1, 6)) for _ in range(GROUP - 1)] + [6]
        if (self.school, visit) == (2, 22):
            grades = [rng.choice([1, 2]) for _ in range(GROUP)]
        prompts = torch.tensor([[rng.randrange(VOCAB) for _ in range(16)] for _ in grades])
        return prompts, grades


def usefulness(hints):
    return torch.tensor([len(set(hint)) / len(hint) for hint in hints])


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    writer, pupils = HintWriter(rank, world), Pupils(rank)
    for visit in range(60):
        prompts, grades = pupils.ask(visit)
        hints = writer.write(prompts, [WORDS_BY_GRADE[g] for g in grades])
        score = usefulness(hints).mean()
        dist.all_reduce(score)
        if rank == 0:
            print(f"visit {visit}: usefulness {score.item() / world:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
