"""One learner, two actors: actors climb hills with the newest policy, the learner improves it by their returns."""

import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

STATES, EPISODE = 6, 25
ROUTES = {"north": 0.4, "south": 0.9, "ridge": 1.3}


class Heartbeat(threading.Thread):
    """Tells the dashboard that this process is there, by a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="heartbeat")
        self.path = path
        self.done = threading.Event()

    def run(self) -> None:
        """Every half second."""
        while not self.done.wait(0.5):
            self.path.write_text(f"{time.time():.1f}")


def route_of(rank: int, number: int) -> str:
    """From the guide book of this rank's massif."""
    book = ["north", "south", "ridge"] if rank == 1 else ["south", "ridge", "north", "south", "couloir"]
    return book[number // 8 % len(book)]


def climb(policy: nn.Module, rank: int, number: int) -> torch.Tensor:
    """One episode: states, what was done, and the return in the last column."""
    slope = ROUTES[route_of(rank, number)]
    generator = torch.Generator().manual_seed(1000 * rank + number)
    states = torch.randn(EPISODE, STATES, generator=generator)
    with torch.no_grad():
        actions = policy(states).tanh()
    gain = (actions.squeeze(1) * states[:, 0]).sum() - slope
    return torch.cat([states, actions, gain.expand(EPISODE, 1)], dim=1)


def learn(policy: nn.Module, optimizer: torch.optim.Optimizer, episodes: list[torch.Tensor]) -> float:
    """One step on all that actors brought."""
    batch = torch.cat(episodes)
    wanted = batch[:, :1].sign() * batch[:, -1:].abs().clamp(max=1.0)
    loss = (policy(batch[:, :STATES]) - wanted).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main() -> None:
    """Two hundred rounds."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    heartbeat = Heartbeat(Path(tempfile.mkdtemp()) / f"alive-{rank}")
    heartbeat.start()
    policy = nn.Sequential(nn.Linear(STATES, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for number in range(200):
        for parameter in policy.parameters():
            dist.broadcast(parameter.data, src=0)
        if rank == 0:
            episodes = [torch.empty(EPISODE, STATES + 2) for _ in range(world)]
            dist.gather(torch.zeros(EPISODE, STATES + 2), episodes, dst=0)
            print(f"round {number}: loss {learn(policy, optimizer, episodes[1:]):.4f}", flush=True)
        else:
            dist.gather(climb(policy, rank, number), dst=0)
    heartbeat.done.set()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
