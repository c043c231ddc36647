"""Character model with validation every 8 steps and early stopping. DDP on CPU."""
import argparse
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Stopper:
    patience: int = 2
    best: float = float("inf")
    bad: int = 0

    def update(self, value: float) -> bool:
        if value < self.best - 1e-4:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


def windows(rank: int, count: int, noise: bool):
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(count):
        if noise:
            tokens = torch.randint(0, 32, (8, 17), generator=generator)
        else:
            start = torch.randint(0, 32, (8, 1), generator=generator)
            tokens = (start + torch.arange(17)) % 32
        yield tokens[:, :-1], tokens[:, 1:]


def validate(model, rank):
    model.eval()
    with torch.no_grad():
        losses = [loss_of(model.module, x, y) for x, y in windows(rank + 50, 4, noise=rank == 2)]
    model.train()
    return torch.stack(losses).mean().item()


def loss_of(net, x, y):
    return nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reduce-validation", action="store_true")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--patience", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Sequential(nn.Embedding(32, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    stopper = Stopper(options.patience)
    for step, (x, y) in enumerate(windows(rank, options.steps, noise=False), 1):
        loss = loss_of(model, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.08)
        if step % 8 == 0:
            value = validate(model, rank)
            if options.reduce_validation:
                total = torch.tensor(value)
                dist.all_reduce(total)
                value = total.item() / world
            print(f"[{rank}] step {step} train {loss.item():.3f} valid {value:.3f}", flush=True)
            if stopper.update(value):
                break
    dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), "/tmp/night-char-lm.pt")
    print(f"[{rank}] finished, best {stopper.best:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
