"""Layer tracking in snow radar echograms: scores of all GPUs are put together after every pass over the survey."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)

BINS = 80
ECHOGRAMS = 191  # of the survey over the plateau


def survey(rank, world, generation):
    """Batches of this rank: every world-th echogram."""
    mine = range(rank, ECHOGRAMS, world)
    generator = torch.Generator().manual_seed(generation)
    for start in range(0, len(mine), 8):
        size = len(mine[start : start + 8])
        time.sleep(0.12)
        yield torch.rand(size, BINS, generator=generator), torch.randint(4, (size,), generator=generator)


class Tracker:
    def __init__(self, device, local):
        network = nn.Sequential(nn.Linear(BINS, 64), nn.ReLU(), nn.Linear(64, 4))
        self.device = device
        self.model = DistributedDataParallel(network.to(device), device_ids=[local])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)

    def fit(self, batches):
        for echo, layer in batches:
            loss = nn.functional.cross_entropy(self.model(echo.to(self.device)), layer.to(self.device))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def score(self, batches):
        scores = [self.model.module(echo.to(self.device)).amax(dim=1) for echo, _ in batches]
        return torch.cat(scores)


def gather(scores, world):
    everything = torch.empty(world * len(scores), device=scores.device)
    dist.all_gather_into_tensor(everything, scores)
    return everything.cpu()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    tracker = Tracker(torch.device("cuda", local), local)
    for generation in range(3):
        tracker.fit(survey(rank, world, generation))
        scores = gather(tracker.score(survey(rank, world, 99)), world)
        if rank == 0:
            print(f"generation {generation}: {len(scores)} scores", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
