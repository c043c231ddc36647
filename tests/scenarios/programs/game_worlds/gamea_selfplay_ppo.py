"""PPO on self-play games of a small board game. The policy is sharded; positions are packed into micro-batches by a cell budget."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


@dataclass
class PPOConfig:
    updates: int = 400
    games: int = 12
    cell_budget: int = 700
    clip: float = 0.2
    lr: float = 3e-4
    handicap_from: int = 30


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


class Policy(nn.Module):
    def __init__(self, width=128, depth=3, moves=49):
        super().__init__()
        self.stem = nn.Linear(49, width)
        self.tower = nn.ModuleList(Residual(width) for _ in range(depth))
        self.moves = nn.Linear(width, moves)

    def forward(self, boards):
        h = self.stem(boards)
        for block in self.tower:
            h = block(h)
        return self.moves(h).log_softmax(-1)


class Arena:
    """Plays games against the frozen opponent assigned to this rank; games against a handicapped one end sooner."""

    OPPONENTS = ("mirror", "novice", "mirror")

    def __init__(self, cfg, rank):
        self.cfg, self.opponent = cfg, self.OPPONENTS[rank % len(self.OPPONENTS)]
        self.rng = torch.Generator().manual_seed(100 + rank)

    def lengths(self, update):
        base = [150 + 10 * (g % 4) for g in range(self.cfg.games)]
        if self.opponent == "novice" and update >= self.cfg.handicap_from:
            return [length // 3 for length in base]
        return base

    def collect(self, update):
        games = []
        for length in self.lengths(update):
            boards = torch.randint(-1, 2, (length, 49), generator=self.rng).float()
            played = torch.randint(0, 49, (length,), generator=self.rng)
            games.append((boards, played, torch.randn(length, generator=self.rng)))
        return games


def pack(games, budget):
    """Consecutive games of at most `budget` positions together form one micro-batch."""
    batch, used = [], 0
    for game in games:
        if batch and used + len(game[0]) > budget:
            yield [torch.cat(part) for part in zip(*batch)]
            batch, used = [], 0
        batch.append(game)
        used += len(game[0])
    if batch:
        yield [torch.cat(part) for part in zip(*batch)]


def build(cfg):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    policy = Policy()
    for block in policy.tower:
        fully_shard(block, mesh=mesh)
    fully_shard(policy, mesh=mesh)
    for module in policy.modules():
        if hasattr(module, "set_force_sum_reduction_for_comms"):
            module.set_force_sum_reduction_for_comms(True)
    return policy, torch.optim.Adam(policy.parameters(), lr=cfg.lr)


def update_policy(policy, optim, games, cfg):
    seen, objective = 0, 0.0
    for boards, played, advantage in pack(games, cfg.cell_budget):
        logp = policy(boards).gather(1, played[:, None]).squeeze(1)
        ratio = (logp - logp.detach()).exp()
        loss = -torch.min(ratio * advantage, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * advantage).mean()
        loss.backward()
        seen, objective = seen + len(boards), objective + loss.item() * len(boards)
    totals = torch.tensor([objective, float(seen)])
    dist.all_reduce(totals)
    optim.step()
    optim.zero_grad()
    return (totals[0] / totals[1]).item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cfg = PPOConfig()
    policy, optim = build(cfg)
    arena = Arena(cfg, dist.get_rank())
    for update in range(cfg.updates):
        objective = update_policy(policy, optim, arena.collect(update), cfg)
        if dist.get_rank() == 0:
            print(f"update {update} objective {objective:+.4f}", flush=True)
    dist.destroy_process_group()
