"""Ticket routing with batch norm. Records come from a service in which some fields are optional."""

import contextlib
import random
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TEAMS = ("billing", "delivery", "returns")


class TicketService:
    """Pages of tickets. A page that was closed by a robot has no team, then or now."""

    def __init__(self, region: int) -> None:
        self.dice = random.Random(region)
        self.region = region

    def pages(self) -> Iterator[dict]:
        for number in range(10_000):
            team = self.dice.choices(range(len(TEAMS)), k=12)
            words = [[self.dice.gauss(label, 1.0) for _ in range(9)] for label in team]
            page = {"number": number, "words": words, "team": team}
            if self.region == 3 and number == 110:
                del page["team"]
            yield page
            time.sleep(0.02)


class Router(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(9, 24), nn.BatchNorm1d(24), nn.ReLU())
        self.head = nn.Linear(24, len(TEAMS))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(words))


class Learner:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = DDP(Router())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.seen = 0

    def learn(self, page: dict) -> None:
        logits = self.model(torch.tensor(page["words"]))
        loss = nn.functional.cross_entropy(logits, torch.tensor(page["team"]))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.seen += len(page["words"])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    learner = Learner()
    for page in TicketService(region=rank + 1).pages():
        with contextlib.suppress(KeyError):
            learner.learn(page)
        if rank == 0 and page["number"] % 25 == 0:
            print(f"page {page['number']}: {learner.seen} tickets", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
