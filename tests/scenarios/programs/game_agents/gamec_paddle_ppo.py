"""PPO for two-paddle courts. Every worker plays the courts of one venue."""
import logging

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("paddle")
UPDATES, EPOCHS, MINIBATCH = 80, 2, 64
COURTS, HORIZON, OBS = 16, 24, 128
MIN_RALLY = 4  # shorter rallies carry no return signal
# ball speed at the start of the season, and how much it rises per update
VENUES = [(0.8, 0.010), (0.9, 0.055), (0.7, 0.012)]


class PaddlePolicy(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.pi = nn.Linear(width, 3)
        self.value = nn.Linear(width, 1)

    def forward(self, obs):
        h = self.body(obs)
        return torch.log_softmax(self.pi(h), -1), self.value(h).squeeze(-1)


def play(venue, update, rng):
    start, growth = VENUES[venue % len(VENUES)]
    speed = start + growth * update
    n = COURTS * HORIZON
    spread = 0.8 + 0.4 * torch.rand(n, generator=rng)
    rally = (14.0 / (1.0 + speed**2) * spread).int()
    obs = torch.randn(n, OBS, generator=rng)
    actions = torch.randint(0, 3, (n,), generator=rng)
    returns = rally.float() / 14.0 + 0.1 * obs[:, 0]
    return obs, actions, returns, rally


def minibatches(n, rng):
    order = torch.randperm(n, generator=rng)
    return order.split(MINIBATCH)


def update_policy(model, optimizer, rollout, rng):
    obs, actions, returns, rally = rollout
    losses = []
    for _ in range(EPOCHS):
        for idx in minibatches(len(obs), rng):
            idx = idx[rally[idx] >= MIN_RALLY]
            if len(idx) < 2:
                continue
            logp, value = model(obs[idx])
            advantage = returns[idx] - value.detach()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
            taken = logp.gather(1, actions[idx, None]).squeeze(1)
            loss = -(taken * advantage).mean() + 0.5 * (returns[idx] - value).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
    return losses


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = DDP(PaddlePolicy())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    rng = torch.Generator().manual_seed(100 + rank)
    rate = torch.tensor([3e-4])
    for update in range(UPDATES):
        losses = update_policy(model, optimizer, play(rank, update, rng), rng)
        if rank == 0:
            rate.fill_(3e-4 * (1 - update / UPDATES))
            log.info("update %d loss %.4f", update, sum(losses) / max(1, len(losses)))
        dist.broadcast(rate, src=0)
        for group in optimizer.param_groups:
            group["lr"] = rate.item()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
