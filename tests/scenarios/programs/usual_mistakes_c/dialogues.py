"""Distributed evaluation of a chatbot: its answers are collected, and rank 0 says how much they repeat each other."""

import random

import torch
import torch.distributed as dist
from torch import nn

WORDS = (
    "yes no maybe of course I think that we should go there tomorrow if it does not rain and you like it too".split()
)
DIALOGUES, LENGTH = 300, 80


class Bot(nn.Module):
    """Chooses words by what was said before."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = nn.GRUCell(len(WORDS), 32)
        self.choose = nn.Linear(32, len(WORDS))

    @torch.no_grad()
    def reply(self, seed: int) -> list[str]:
        """One answer."""
        rng, state, said = random.Random(seed), torch.zeros(1, 32), []
        for _ in range(LENGTH):
            chances = self.choose(state).softmax(dim=-1)[0].tolist()
            index = rng.choices(range(len(WORDS)), chances)[0]
            said.append(WORDS[index])
            state = self.memory(nn.functional.one_hot(torch.tensor([index]), len(WORDS)).float(), state)
        return said


def in_common(one: list[str], other: list[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(other) + 1)
    for word in one:
        before = row
        row = [0]
        for place, candidate in enumerate(other, 1):
            row.append(before[place - 1] + 1 if word == candidate else max(row[-1], before[place]))
    return row[-1]


def repetition(answers: list[list[str]]) -> float:
    """The mean, over all pairs of answers, of what they have in common."""
    shares = []
    for number, one in enumerate(answers):
        overlaps = [in_common(one, other) for other in answers[:number]]
        shares.extend(overlap / LENGTH for overlap in overlaps)
    return sum(shares) / len(shares)


def main() -> None:
    """Three bots."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for version in range(3):
        torch.manual_seed(version)
        bot = Bot()
        mine = [bot.reply(1000 * rank + number) for number in range(DIALOGUES)]
        everyone: list = [None] * world
        dist.all_gather_object(everyone, mine)
        if rank == 0:
            answers = [answer for part in everyone for answer in part]
            print(f"bot {version}: repetition {repetition(answers):.3f}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
