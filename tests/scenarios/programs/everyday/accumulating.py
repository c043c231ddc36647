"""Letters in old prints; gradients are accumulated over a number of pages that depends on how full they are."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

BUDGET = 90


def pages(rank, epoch):
    gen = torch.Generator().manual_seed(1000 * epoch + rank)
    for _ in range(40):
        letters = int(torch.randint(5, 40, (), generator=gen))
        yield torch.rand(letters, 16, generator=gen), torch.randint(0, 26, (letters,), generator=gen)


def windows(rank, epoch):
    """Pages up to the budget of letters; each process makes six windows of them."""
    made, window, size = 0, [], 0
    for page in pages(rank, epoch):
        window.append(page)
        size += len(page[1])
        if size >= BUDGET:
            yield window
            made, window, size = made + 1, [], 0
        if made == 6:
            return


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 26)))
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(4):
        for window in windows(rank, epoch):
            letters = sum(len(y) for _, y in window)
            for number, (x, y) in enumerate(window, 1):
                last = number == len(window)
                with contextlib.nullcontext() if last else model.no_sync():
                    loss = nn.functional.cross_entropy(model(x), y, reduction="sum") / letters
                    loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        figures = torch.tensor([loss.item()])
        dist.all_reduce(figures)
        if rank == 0:
            print(f"epoch {epoch}: {figures.item() / dist.get_world_size():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
