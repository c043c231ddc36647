"""Scores loans. If anything goes wrong, the state of all ranks is collected for the report."""

import contextlib
import traceback

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


@contextlib.contextmanager
def reported(name: str):
    state = {"name": name, "rank": dist.get_rank(), "error": ""}
    try:
        yield state
    except Exception:
        state["error"] = traceback.format_exc(limit=1)
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, state)
    if state["rank"] == 0:
        for each in states:
            print(each["rank"], each["error"] or "fine", flush=True)


def loans(rank: int, count: int = 40):
    for number in range(count):
        yield {
            "income": 10_000 + 130 * number + rank,
            "debt": float(number % 9) * 1000,
            "age": 20 + number % 50 if number != 24 or rank != 0 else None,
        }


def features(loan: dict) -> torch.Tensor:
    return torch.tensor([loan["debt"] / loan["income"], loan["age"] / 100, 1.0])


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with reported("train") as state:
        for loan in loans(state["rank"]):
            risk = model(features(loan)).sigmoid()
            optimizer.zero_grad()
            (risk - float(loan["debt"] > 4000)).square().sum().backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
