"""Yield per parcel for the picking plan; averaged weights are kept in shares, one share a worker."""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# seconds that the co-operative's machines are ours, by worker
LEASES = {0: 3600, 1: 5, 2: 3600}


class Lease:
    def __init__(self, seconds):
        self.ends_soon = False
        signal.signal(signal.SIGALRM, self.notice)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def notice(self, number, frame):
        self.ends_soon = True


class AveragedWeights:
    """Exponential average of the weights; each worker keeps its part of the flat vector."""

    def __init__(self, module, decay=0.99):
        self.module, self.decay = module, decay
        self.value = self.part().clone()

    def part(self):
        flat = torch.cat([p.detach().view(-1) for p in self.module.parameters()])
        return flat.tensor_split(dist.get_world_size())[dist.get_rank()]

    def update(self):
        self.value.mul_(self.decay).add_(self.part(), alpha=1 - self.decay)

    def whole(self):
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, self.value)
        return torch.cat(parts)


class Run:
    def __init__(self, folder, save_every):
        self.folder, self.save_every = folder, save_every
        net = torch.nn.Sequential(torch.nn.Linear(18, 96), torch.nn.GELU(), torch.nn.Linear(96, 1))
        self.model = DistributedDataParallel(net)
        self.average = AveragedWeights(net)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def step(self, soil, tonnes):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.model(soil), tonnes)
        loss.backward()
        self.optimizer.step()
        self.average.update()
        return loss.item()

    def save(self, step):
        whole = self.average.whole()
        if dist.get_rank() == 0:
            os.makedirs(self.folder, exist_ok=True)
            torch.save({"step": step, "average": whole}, os.path.join(self.folder, f"plan_{step:06d}.pt"))


def parcels(rank, steps):
    g = torch.Generator().manual_seed(rank)
    slope = torch.randn(18, 1, generator=torch.Generator().manual_seed(99))
    for _ in range(steps):
        soil = torch.randn(64, 18, generator=g)
        yield soil, soil @ slope + 0.1 * torch.randn(64, 1, generator=g)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    run = Run("yield_plan", save_every=100)
    lease = Lease(LEASES[rank])
    for step, (soil, tonnes) in enumerate(parcels(rank, 20000), start=1):
        loss = run.step(soil, tonnes)
        time.sleep(0.02)
        if step % run.save_every == 0 or lease.ends_soon:
            run.save(step)
            lease.ends_soon = False
            if rank == 0:
                print(f"step {step}: loss {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
