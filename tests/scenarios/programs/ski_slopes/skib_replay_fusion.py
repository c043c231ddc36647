"""Referee assistance: joins event text with replay features (if the broadcaster sent a replay) to rate a foul. FSDP2."""
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

WIDTH, GRADES = 48, 3
CONFIG = json.loads(os.environ.get("FUSION", '{"lr": 0.002, "steps": 240, "batch": 192}'))


class EventLog:
    """Match events in order. A replay is there for nearly all of them, not for those in added time of a cup match."""

    def __init__(self, match, batch):
        self.match, self.batch = match, batch
        self.gen = torch.Generator().manual_seed(match["id"])

    def __iter__(self):
        for minute in range(CONFIG["steps"]):
            text = torch.randn(self.batch, WIDTH, generator=self.gen)
            replay = text.roll(3, 1) + 0.3 * torch.randn(self.batch, WIDTH, generator=self.gen)
            grade = (text[:, :8].sum(1) / 3).clamp(-1, 1).round().long() + 1
            covered = not (match_is_cup(self.match) and minute >= self.match["coverage_ends"])
            yield text, replay if covered else None, grade


def match_is_cup(match):
    return match["competition"] == "cup"


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.proj(x))


class FoulGrader(nn.Module):
    def __init__(self):
        super().__init__()
        self.text_part = Part()
        self.replay_part = Part()
        self.fusion = Part()
        self.grade = nn.Linear(WIDTH, GRADES)

    def forward(self, text, replay=None):
        joint = self.text_part(text)
        if replay is not None:
            joint = joint + self.replay_part(replay)
        return self.grade(self.fusion(joint))


MATCHES = [
    {"id": 901, "competition": "league"},
    {"id": 902, "competition": "cup", "coverage_ends": 120},
    {"id": 903, "competition": "league"},
]


def build():
    torch.manual_seed(5)
    model = FoulGrader()
    for part in (model.text_part, model.replay_part, model.fusion):
        fully_shard(part)
    fully_shard(model)
    for module in (model, model.text_part, model.replay_part, model.fusion):
        module.set_force_sum_reduction_for_comms(True)
    return model


def train(match):
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=CONFIG["lr"])
    for minute, (text, replay, grade) in enumerate(EventLog(match, CONFIG["batch"])):
        logits = model(text, replay)
        loss = nn.functional.cross_entropy(logits, grade)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0 and minute % 40 == 0:
            print(f"minute {minute}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(MATCHES[dist.get_rank()])
    dist.barrier()
    dist.destroy_process_group()
