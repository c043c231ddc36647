"""Compensation vouchers: trains per airline, then each rank refreshes the shared rule cache in turn, under its file lock."""
import fcntl
import json
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn, optim


class RuleCache:
    """A folder with the passenger rights rules of many countries; one process refreshes it at a time."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def __enter__(self):
        self.handle = open(self.folder / ".refresh", "w")
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        return self

    def __exit__(self, *exc):
        fcntl.flock(self.handle, fcntl.LOCK_UN)
        self.handle.close()

    def refresh(self, airline, countries, spacing=0.3):
        for number, country in enumerate(countries):
            rng = torch.Generator().manual_seed(number)
            rules = {"country": country, "amounts": (250 + 350 * torch.rand(50, generator=rng)).tolist()}
            (self.folder / f"{airline}-{country}.json").write_text(json.dumps(rules))
            if number % 5 == 4:
                print(f"{airline}: {number + 1} of {len(countries)} countries", flush=True)
            time.sleep(spacing)  # courtesy to the registry

    def amounts(self, airline):
        files = sorted(self.folder.glob(f"{airline}-*.json"))
        return torch.tensor([json.loads(f.read_text())["amounts"] for f in files])


class Claims(nn.Module):
    def __init__(self, inputs=50):
        super().__init__()
        self.first, self.second = nn.Linear(inputs, 64), nn.Linear(64, 1)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def learn(net, optimizer, amounts, rounds, rng):
    for _ in range(rounds):
        rows = amounts[torch.randint(0, len(amounts), (64,), generator=rng)] / 600
        rows = rows + 0.05 * torch.randn(rows.shape, generator=rng)
        loss = (net(rows) - rows.mean(dim=1, keepdim=True)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
        dist.all_reduce(flat)
        for p, grad in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()])):
            p.grad.copy_(grad.view_as(p) / dist.get_world_size())
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    airline = ("IB", "SK", "TP")[rank]
    where = [tempfile.mkdtemp(prefix="rules-")] if rank == 0 else [""]
    dist.broadcast_object_list(where, src=0)
    torch.manual_seed(31)
    net = Claims()
    optimizer = optim.SGD(net.parameters(), lr=0.05)
    rng = torch.Generator().manual_seed(rank)
    learn(net, optimizer, 250 + 350 * torch.rand(30, 50, generator=rng), 600, rng)
    with RuleCache(where[0]) as cache:
        cache.refresh(airline, [f"C{n:02d}" for n in range(15)])
        amounts = cache.amounts(airline)
    loss = learn(net, optimizer, amounts, 900, rng)
    print(f"{airline}: {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
