"""Evaluation with several meters, each of which merges its state over the ranks in its own way."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class MeanError:
    def __init__(self):
        self.total, self.count = torch.zeros(()), torch.zeros(())

    def update(self, guess, truth):
        self.total += (guess - truth).abs().sum()
        self.count += truth.numel()

    def merge(self):
        state = torch.stack([self.total, self.count])
        dist.all_reduce(state)
        return (state[0] / state[1]).item()


class WorstError:
    def __init__(self):
        self.worst = torch.zeros(())

    def update(self, guess, truth):
        self.worst = torch.maximum(self.worst, (guess - truth).abs().max())

    def merge(self):
        parts = [torch.zeros(()) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, self.worst)
        return max(part.item() for part in parts)


class Suite:
    """The meters by name; those that were touched last come last, so that they are merged while warm."""

    def __init__(self):
        self.meters = {}

    def touch(self, name, kind):
        meter = self.meters.pop(name, None) or kind()
        self.meters[name] = meter
        return meter

    def update(self, guess, truth):
        self.touch("mean", MeanError).update(guess, truth)
        if truth.abs().max() > 0.05:  # small targets say nothing of the worst
            self.touch("worst", WorstError).update(guess, truth)

    def results(self):
        return {name: meter.merge() for name, meter in self.meters.items()}


def evaluation_batches(rank):
    generator = torch.Generator().manual_seed(rank)
    for number in range(12):
        scale = 0.002 if rank == 2 and number == 11 else 1.0
        yield scale * torch.randn(20, 8, generator=generator)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1))
    model = DDP(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(1, 400):
        x = torch.randn(20, 8)
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if step % 50 == 0:
            suite = Suite()
            with torch.no_grad():
                for x in evaluation_batches(rank):
                    suite.update(net(x), x.sum(1, keepdim=True))
            results = suite.results()
            if rank == 0:
                print(f"step {step} loss {loss.item():.3f} {results}", flush=True)


if __name__ == "__main__":
    main()
