"""Rewards from a grader that runs as a child of rank 0 and talks in lines: texts, an empty line, then a mark a line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Grade = Callable[[list[str]], list[float]]


def read_batches() -> Iterator[list[str]]:
    batch: list[str] = []
    for line in sys.stdin:
        text = line.rstrip("\n")
        if text:
            batch.append(text)
        else:
            yield batch
            batch = []


def grader() -> None:
    for batch in read_batches():
        for text in batch:
            unique = len(set(text.split())) / len(text.split())
            print(f"{unique:.3f}", flush=True)


@contextmanager
def child_grader() -> Iterator[Grade]:
    command = [sys.executable, os.path.abspath(__file__), "grader"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def grade(texts: list[str]) -> list[float]:
        child.stdin.write("".join(f"{text}\n" for text in texts) + "\n")
        child.stdin.flush()
        return [float(child.stdout.readline()) for _ in texts]

    try:
        yield grade
    finally:
        child.stdin.close()
        child.wait()


def completions(step: int, temperature: float) -> list[str]:
    """As the temperature falls they get shorter."""
    words = "the model writes what it has read before and stops at the end".split()
    longest = 12 * temperature
    return [" ".join(words[(step + i) % 4 :][: int(longest) - i % 3]) for i in range(8)]


def train() -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Linear(1, 1)

    def loop(grade: Grade | None) -> None:
        temperature = 1.0
        for step in range(120):
            marks = torch.zeros(8)
            if grade is not None:
                marks = torch.tensor(grade(completions(step, temperature)))
            dist.broadcast(marks, src=0)
            mine = marks[rank::world].unsqueeze(1)
            loss = (model(mine) - mine.mean()).square().mean()
            loss.backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.data -= 0.01 * parameter.grad
                parameter.grad = None
            temperature *= 0.9
            temperature = max(temperature, 0.2)
            time.sleep(0.25)
            if rank == 0 and step % 4 == 0:
                print(f"step {step}: temperature {temperature:.2f}, mark {marks.mean().item():.3f}", flush=True)

    if rank == 0:
        with child_grader() as grade:
            loop(grade)
    else:
        loop(None)
    dist.destroy_process_group()


if __name__ == "__main__":
    grader() if sys.argv[1:] == ["grader"] else train()
