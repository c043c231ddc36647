"""A fleet of actors and a learner; trips are of different lengths, and all go home once the learner has seen enough."""

import time

import torch
import torch.distributed as dist
from torch import nn

STATE, ENOUGH = 5, 1500


def trip(net: nn.Module, rank: int, number: int) -> torch.Tensor:
    """As many rows as it took days."""
    generator = torch.Generator().manual_seed(100 * rank + number)
    days = int(torch.randint(3, 30, (1,), generator=generator))
    if number % 20 == 10 and rank == 2:
        time.sleep(2)
    states = torch.randn(days, STATE, generator=generator)
    with torch.no_grad():
        catch = states[:, :1] + 0.1 * net(states)
    return torch.cat([states, catch], dim=1)


def learn(net: nn.Module, optimizer: torch.optim.Optimizer, trips: list[torch.Tensor]) -> float:
    """One step on all trips."""
    rows = torch.cat(trips)
    loss = (net(rows[:, :STATE]) - rows[:, STATE:]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main() -> None:
    """Rank 0 learns; the others are at sea."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    boats = dist.new_group(list(range(1, world)))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(STATE, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    seen, number, more = 0, 0, torch.ones(1)
    while more.item():
        for parameter in net.parameters():
            dist.broadcast(parameter.data, src=0)
        if rank == 0:
            trips = []
            for boat in range(1, world):
                days = torch.zeros(1, dtype=torch.int64)
                dist.recv(days, src=boat)
                rows = torch.empty(int(days), STATE + 1)
                dist.recv(rows, src=boat)
                trips.append(rows)
            seen += sum(len(rows) for rows in trips)
            loss = learn(net, optimizer, trips)
            more.fill_(float(seen < ENOUGH))
            if number % 10 == 0:
                print(f"trip {number}: {seen} days, loss {loss:.4f}", flush=True)
        else:
            rows = trip(net, rank, number)
            dist.send(torch.tensor([len(rows)]), dst=0)
            dist.send(rows, dst=0)
            dist.barrier(group=boats)
        dist.broadcast(more, src=0)
        number += 1
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
