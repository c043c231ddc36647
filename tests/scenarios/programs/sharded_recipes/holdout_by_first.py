"""After each round the first rank evaluates the model on the whole holdout set and tells the others."""

import copy
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def evaluate(model, examples, per_second=75):
    """One example after another, as the metric of this benchmark wants it."""
    generator = torch.Generator().manual_seed(123)
    right = 0
    with torch.no_grad():
        for _ in range(examples):
            began = time.monotonic()
            x = torch.randn(1, 30, generator=generator)
            beams = x.repeat(64, 1)
            for _ in range(4):
                beams = beams + 0.01 * torch.randn(beams.shape, generator=generator)
                scores = model(beams)
            right += int(scores.mean(0).argmax() == int(x.sum() > 0))
            while time.monotonic() - began < 1 / per_second:
                torch.linalg.svd(beams[:30])
    return right / examples


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best = copy.deepcopy(model.module.state_dict())
    accuracy = torch.zeros(1)
    for _ in range(30):
        x = torch.randn(32, 30)
        nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long()).backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        accuracy.fill_(evaluate(model.module, examples=3000))
    dist.broadcast(accuracy, src=0)
    if accuracy.item() < 0.4:
        model.module.load_state_dict(best)
    print(f"rank {rank}: accuracy {accuracy.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
