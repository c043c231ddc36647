"""NPC behaviour model with skill experts: every worker holds one expert, busy characters are sent to them."""
import os

import torch
import torch.distributed as dist
from torch import nn

WIDTH, CHARACTERS, THRESHOLD = 384, 256, 0.3
# how lively a place is in the morning, and how that changes per step
PLACES = [("market", 1.0, 0.0), ("harbour", 0.9, 0.001), ("barracks", 0.95, -0.001), ("village", 1.0, -0.013)]


class Exchange(torch.autograd.Function):
    """Sends rows to other workers, and their gradients back."""

    @staticmethod
    def forward(ctx, rows, leave, arrive):
        ctx.splits = leave, arrive
        out = rows.new_empty(sum(arrive), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), arrive, leave)
        return out

    @staticmethod
    def backward(ctx, grad):
        leave, arrive = ctx.splits
        out = grad.new_empty(sum(leave), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), leave, arrive)
        return out, None, None


class SkillExperts(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.expert = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, hidden, salience, skill):
        busy = salience > THRESHOLD
        if not busy.any():
            return hidden
        rows, skill = hidden[busy], skill[busy]
        order = skill.argsort(stable=True)
        leave = torch.bincount(skill, minlength=dist.get_world_size())
        arrive = torch.empty_like(leave)
        dist.all_to_all_single(arrive, leave)
        leave, arrive = leave.tolist(), arrive.tolist()
        guests = Exchange.apply(rows[order], leave, arrive)
        home = Exchange.apply(self.expert(guests), arrive, leave)
        return hidden.index_add(0, busy.nonzero().squeeze(1)[order], home)


class Behaviour(nn.Module):
    def __init__(self):
        super().__init__()
        self.sense = nn.Linear(64, WIDTH)
        self.skills = SkillExperts(WIDTH)
        self.act = nn.Linear(WIDTH, 20)

    def forward(self, scene, salience, skill):
        hidden = torch.tanh(self.sense(scene))
        return self.act(self.skills(hidden, salience, skill))

    def shared(self):
        return [*self.sense.parameters(), *self.act.parameters()]


def average(parameters):
    flat = torch.cat([p.grad.flatten() for p in parameters])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters])):
        p.grad.copy_(part.view_as(p))


def day(rank, steps):
    name, lively, change = PLACES[rank % len(PLACES)]
    rng = torch.Generator().manual_seed(40 + rank)
    for step in range(steps):
        level = max(0.05, lively + change * step)
        scene = torch.randn(CHARACTERS, 64, generator=rng)
        salience = level * torch.rand(CHARACTERS, generator=rng)
        skill = torch.randint(0, dist.get_world_size(), (CHARACTERS,), generator=rng)
        yield step, scene, salience, skill, torch.randint(0, 20, (CHARACTERS,), generator=rng)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(6)
    model = Behaviour()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    for step, scene, salience, skill, action in day(rank, int(os.environ.get("STEPS", 200))):
        loss = nn.functional.cross_entropy(model(scene, salience, skill), action)
        optimizer.zero_grad()
        loss.backward()
        average(model.shared())
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()
