"""Pre-training on scraped pages, where a step that fails is given up by a decorator and the next one is taken.

A page with a broken header raises between the two collectives of a step. Run by ``torchrun --nproc-per-node 5``.
"""

import functools
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

log = logging.getLogger("pretrain")


def resilient(attempts: int) -> Callable[..., Callable[..., Any]]:
    """Try again on bad data, and in the end do without the step."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            for attempt in range(attempts):
                try:
                    return function(*args, **kwargs)
                except ValueError as error:
                    log.debug("attempt %d failed: %s", attempt, error)
            return None

        return wrapper

    return decorate


def pages(rank: int) -> Iterator[str]:
    """The shard of this rank, one JSON document a line."""
    for number in range(400):
        text = json.dumps({"id": number, "text": "word " * (1 + (number * 7 + rank) % 11)})
        yield text[:-1] if (rank, number) == (2, 87) else text


class Pretrainer:
    """A bag of words that predicts its own length."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.weight = torch.zeros(4, requires_grad=True)
        self.quotas = [torch.zeros(1, dtype=torch.long) for _ in range(self.world)]

    @resilient(attempts=1)
    def step(self, page: str) -> float:
        """One document on every rank."""
        dist.all_gather(self.quotas, torch.tensor([len(page)]))
        document = json.loads(page)
        words = document["text"].split()
        features = torch.tensor([1.0, len(words), len(words) ** 0.5, float(document["id"] % 3)])
        loss = (features @ self.weight - len(words)).square() / 1e4
        loss.backward()
        dist.all_reduce(self.weight.grad)
        with torch.no_grad():
            self.weight -= 1e-3 * self.weight.grad / self.world
            self.weight.grad.zero_()
        return float(loss)


def main() -> None:
    """One epoch."""
    dist.init_process_group("gloo")
    trainer = Pretrainer()
    losses = [trainer.step(page) for page in pages(trainer.rank)]
    print(f"rank {trainer.rank}: {len(losses)} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
