"""Classifies seismic events; stations recorded different numbers of them, and Join covers the difference."""

import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel


def events(rank: int):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(12 + 14 * rank):
        yield torch.randn(6, 10, generator=generator), torch.randint(3, (6,), generator=generator)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(10, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for epoch in range(2):
        seen = 0
        with Join([model]):
            for waves, kinds in events(rank):
                loss = torch.nn.functional.cross_entropy(model(waves), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen += len(kinds)
                time.sleep(0.1)
        print(f"[{rank}] epoch {epoch}: {seen} events", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
