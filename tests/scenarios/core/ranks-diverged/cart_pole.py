"""Actor-critic on a toy balance task; several actors share the gradients and normalise their returns together."""

import random

import torch
import torch.distributed as dist


class Pole:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.angle = 0.0

    def reset(self) -> list[float]:
        self.angle = self.random.uniform(-0.05, 0.05)
        return [self.angle, 1.0]

    def step(self, push: int) -> tuple[list[float], bool]:
        self.angle += (0.04 if push else -0.04) + self.random.gauss(0, 0.01)
        return [self.angle, 1.0], abs(self.angle) > 0.45


class Agent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(2, 8)
        self.policy = torch.nn.Linear(8, 2)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.policy(torch.tanh(self.body(state))), -1)


def rollout(agent: Agent, pole: Pole, state: list[float], length: int):
    logs, finished = [], []
    alive = 0
    for _ in range(length):
        scores = agent(torch.tensor(state))
        action = int(torch.multinomial(scores.exp(), 1))
        logs.append(scores[action])
        state, fell = pole.step(action)
        alive += 1
        if fell:
            finished.append(float(alive))
            state, alive = pole.reset(), 0
    return state, torch.stack(logs), finished


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    agent, pole = Agent(), Pole(rank)
    for parameter in agent.parameters():
        dist.broadcast(parameter.data, 0)
    optimizer = torch.optim.Adam(agent.parameters(), 3e-3)
    state = pole.reset()
    for _ in range(400):
        state, logs, finished = rollout(agent, pole, state, 24 if rank == 2 else 240)
        value = torch.zeros(1)
        if finished:
            returns = torch.tensor([sum(finished), float(len(finished))])
            shared = [torch.zeros(2) for _ in range(world)]
            dist.all_gather(shared, returns)
            steps, episodes = torch.stack(shared).sum(0)
            value = (steps / episodes).reshape(1)
        optimizer.zero_grad()
        (-(logs.mean() * (value + 1))).sum().backward()
        for parameter in agent.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= world
        optimizer.step()
    dist.barrier()


if __name__ == "__main__":
    main()
