"""Actor-critic in four arenas, one for each process, with a report of the finished games every ten updates."""
import torch
from accelerate import Accelerator
from torch import nn

ARENAS = [
    {"name": "pond", "length": 6},
    {"name": "bridge", "length": 7},
    {"name": "tower", "length": 5, "ranked_from": 20, "ranked_length": 15},
    {"name": "harbour", "length": 8},
]
REPORT_EVERY = 10


class ActorCritic(nn.Module):
    def __init__(self, observation=48, actions=9):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observation, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
        self.actor = nn.Linear(128, actions)
        self.critic = nn.Linear(128, 1)

    def forward(self, observation):
        h = self.body(observation)
        return torch.log_softmax(self.actor(h), dim=-1), self.critic(h).squeeze(-1)


class Arena:
    """A batch of mirrored games that end together."""

    def __init__(self, spec, seed):
        self.spec = spec
        self.generator = torch.Generator().manual_seed(seed)
        self.dynamics = torch.randn(48, 48, generator=self.generator) / 7
        self.turn = 0
        self.updates = 0
        self.finished = []
        self.state = self.start()

    def start(self):
        return torch.randn(2048, 48, generator=self.generator)

    @property
    def length(self):
        if self.updates > self.spec.get("ranked_from", 10**9):
            return self.spec["ranked_length"]
        return self.spec["length"]

    def rollout(self):
        self.updates += 1
        for _ in range(60):
            self.state = torch.tanh(self.state @ self.dynamics + 0.05)
        self.turn += 1
        reward = self.state[:, 0]
        observation = self.state
        if self.turn >= self.length:
            self.finished.append(reward.mean().item())
            self.turn = 0
            self.state = self.start()
        return observation, reward


class Report:
    def __init__(self, accelerator, arena):
        self.accelerator = accelerator
        self.arena = arena

    def collect(self):
        games = self.arena.finished
        if not games:
            return None
        mine = torch.tensor([[sum(games), float(len(games))]])
        everyone = self.accelerator.gather(mine)
        self.arena.finished = []
        total, count = everyone.sum(0).tolist()
        return total / count


def main():
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(3)
    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)
    index = accelerator.process_index
    arena = Arena(ARENAS[index % len(ARENAS)], seed=40 + index)
    report = Report(accelerator, arena)
    for update in range(1, 201):
        observation, reward = arena.rollout()
        log_probability, value = model(observation)
        action = torch.distributions.Categorical(logits=log_probability.detach()).sample()
        advantage = (reward - value).detach()
        chosen = log_probability.gather(1, action[:, None]).squeeze(1)
        loss = -(chosen * advantage).mean() + nn.functional.mse_loss(value, reward)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        if update % REPORT_EVERY == 0:
            mean = report.collect()
            if mean is not None:
                accelerator.print(f"update {update}: mean score {mean:+.3f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
