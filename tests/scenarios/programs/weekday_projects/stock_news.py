"""Trains on market news; what is logged has a process group of its own."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Logger:
    def __init__(self) -> None:
        self.group = dist.new_group(timeout=timedelta(minutes=2))
        self.history: list[float] = []

    def log(self, step: int, loss: torch.Tensor) -> None:
        value = loss.detach()
        self.history.append(value.item())
        print(f"step {step}: {value.item():.4f}", flush=True)

    def close(self) -> None:
        dist.barrier(group=self.group)
        print(f"{len(self.history)} values", flush=True)


def headlines(rank: int):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(30):
        words = torch.randint(120, (8, 7), generator=generator)
        yield words, words.sum(1) % 2


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(120, 8)
        self.up_or_down = torch.nn.Linear(8, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.up_or_down(self.bag(words))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logger = Logger() if rank == 0 else None
    torch.manual_seed(0)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step, (words, labels) in enumerate(headlines(rank)):
        loss = torch.nn.functional.cross_entropy(model(words), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if logger is not None:
            logger.log(step, loss)
    if logger is not None:
        logger.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
