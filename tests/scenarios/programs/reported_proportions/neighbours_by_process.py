"""DDP: nearest neighbours of the embeddings are looked up by a process of its own after each epoch."""

import multiprocessing

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def look_up(vectors: list[list[float]], answers: multiprocessing.Queue) -> None:
    """The order of all others, for each."""
    points = torch.tensor(vectors)
    answers.put(torch.cdist(points, points).argsort(dim=1).tolist())


def neighbours(vectors: torch.Tensor) -> list[list[int]]:
    """In a process, so that its memory is given back."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=look_up, args=(vectors.tolist(), answers))
    child.start()
    child.join()
    return answers.get()


def main() -> None:
    """Three epochs."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 8))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.randn(600, 20, generator=torch.Generator().manual_seed(rank))
    for epoch in range(3):
        for rows in torch.randperm(600).split(20):
            a, b = model(data[rows]).chunk(2)
            loss = (a - b).square().sum(dim=1).add(0.1).reciprocal().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 1:
            with torch.no_grad():
                order = neighbours(net(data))
            print(f"epoch {epoch}: the first three of row 0: {order[0][1:4]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
