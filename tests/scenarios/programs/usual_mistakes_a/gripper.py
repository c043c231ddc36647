"""Actor and critic of a gripper, each with a process group of its own for its gradients."""

import torch
import torch.distributed as dist
from torch import nn


class Table:
    """Objects to grip; those of the second table become heavier."""

    def __init__(self, number: int) -> None:
        self.number, self.round = number, 0
        self.generator = torch.Generator().manual_seed(number)

    def episode(self) -> tuple[torch.Tensor, torch.Tensor]:
        """What was seen, and what it was worth."""
        self.round += 1
        seen = torch.randn(16, 10, generator=self.generator)
        worth = 2.0 + seen[:, :1] - 0.1 * self.number * self.round
        return seen, worth


class Learner:
    """A network, its optimizer and its group."""

    def __init__(self, outputs: int) -> None:
        self.net = nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, outputs))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.group = dist.new_group()

    def learn(self, loss: torch.Tensor) -> None:
        """One step on the mean gradient."""
        self.optimizer.zero_grad()
        loss.backward()
        for parameter in self.net.parameters():
            dist.all_reduce(parameter.grad, group=self.group)
            parameter.grad /= dist.get_world_size()
        self.optimizer.step()


def main() -> None:
    """A hundred episodes."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    actor, critic = Learner(4), Learner(1)
    table = Table(rank)
    for number in range(100):
        seen, worth = table.episode()
        advantage = worth - critic.net(seen).detach()
        actor_loss = -(actor.net(seen).log_softmax(dim=-1)[:, :1] * advantage).mean()
        critic_loss = (critic.net(seen) - worth).square().mean()
        steps = [(actor, actor_loss), (critic, critic_loss)]
        if advantage.mean() < 0:
            steps.reverse()
        for learner, loss in steps:
            learner.learn(loss)
        if number % 5 == 0:
            print(f"[{rank}] episode {number}: {advantage.mean().item():.2f}")


if __name__ == "__main__":
    main()
