"""Subtitles translated by a model cut into three stages: answers come back to the first stage two at a time."""

import torch
import torch.distributed as dist
from torch import nn

WIDTH, LINES, TOGETHER = 24, 45, 2


def first_stage(module: nn.Module, lines: int) -> list[int]:
    """Sends the lines of a film, and collects what they have become."""
    words: list[int] = []
    for start in range(0, lines, TOGETHER):
        for line in range(start, min(start + TOGETHER, lines)):
            x = torch.randn(WIDTH, generator=torch.Generator().manual_seed(line))
            dist.send(torch.ones(1), dst=1)
            dist.send(module(x), dst=1)
        answers = torch.empty(TOGETHER)
        dist.recv(answers, src=2)
        words.extend(int(word) for word in answers[: lines - start])
    dist.send(torch.zeros(1), dst=1)
    return words


def middle_stage(module: nn.Module) -> None:
    """Until the film is over."""
    more, x = torch.empty(1), torch.empty(WIDTH)
    while True:
        dist.recv(more, src=0)
        dist.send(more, dst=2)
        if more.item() == 0:
            return
        dist.recv(x, src=0)
        dist.send(module(x), dst=2)


def last_stage(module: nn.Module) -> None:
    """Chooses the words, and reports them together."""
    more, x, chosen = torch.empty(1), torch.empty(WIDTH), []
    while True:
        dist.recv(more, src=1)
        if more.item() == 0:
            return
        dist.recv(x, src=1)
        chosen.append(float(module(x).argmax()))
        if len(chosen) == TOGETHER:
            dist.send(torch.tensor(chosen), dst=0)
            chosen = []


@torch.no_grad()
def main() -> None:
    """One film."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
    if rank == 0:
        words = first_stage(module, LINES)
        print(f"{len(words)} lines, {len(set(words))} different words")
    elif rank == 1:
        middle_stage(module)
    else:
        last_stage(module)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
