"""Generator and critic, each under DDP with a process group of its own; who is behind learns first."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Player:
    """A network, its optimizer and its group."""

    def __init__(self, name: str, net: nn.Module) -> None:
        self.name = name
        self.net = DistributedDataParallel(net, process_group=dist.new_group())
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.loss = 0.0

    def learn(self, x: torch.Tensor, target: float) -> None:
        """One step."""
        self.optimizer.zero_grad()
        loss = (self.net(x) - target).square().mean()
        loss.backward()
        self.optimizer.step()
        self.loss = 0.9 * self.loss + 0.1 * loss.item()


def noise(rank: int, turn: int) -> torch.Tensor:
    """Input of a turn; one rank's generator of numbers gave large ones for a while."""
    scale = 60.0 if rank == 2 and turn in range(24, 28) else 1.0
    return scale * torch.ones(4, 6)


def main() -> None:
    """Sixty turns."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    generator = Player("generator", nn.Linear(6, 6))
    critic = Player("critic", nn.Linear(6, 1))
    generator.loss, critic.loss = 0.0, 200.0
    for turn in range(60):
        x = noise(dist.get_rank(), turn)
        jobs = [(generator, x, 1.0), (critic, torch.ones(4, 6), 0.0)]
        for player, inputs, target in sorted(jobs, key=lambda job: job[0].loss, reverse=True):
            player.learn(inputs, target)
        if turn % 20 == 0:
            print(f"{turn}: {generator.loss:.3f} {critic.loss:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
