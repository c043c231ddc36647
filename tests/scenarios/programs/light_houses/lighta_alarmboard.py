"""Learns an order of urgency for open buoy alarms (off station, lamp out, low battery)."""
import os
from collections import deque
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

FEATURES = 24


@dataclass
class Alarm:
    buoy: str
    kind: int
    age_h: float

    def encode(self):
        row = torch.zeros(FEATURES)
        row[self.kind] = 1.0
        row[8] = self.age_h / 48.0
        row[9:] = torch.sin(torch.arange(15) * self.age_h)
        return row


@dataclass
class District:
    name: str
    open_alarms: deque = field(default_factory=deque)
    archive: list = field(default_factory=list)

    @classmethod
    def load(cls, name, backlog):
        alarms = (Alarm(f"{name}-{n:03d}", n % 3, 0.5 * n + 1) for n in range(backlog))
        district = cls(name, deque(alarms))
        district.archive = [Alarm(f"{name}-old{n}", n % 3, 0.25 * n + 1) for n in range(200)]
        return district

    def hand_over(self, watch):
        """Every eighth watch the tender has been to one of the buoys."""
        if watch % 8 == 7 and self.open_alarms:
            self.archive.append(self.open_alarms.popleft())


DISTRICTS = [("skagen", 44), ("lista", 61), ("utsira", 13)]


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(FEATURES, 48), nn.Tanh(), nn.Linear(48, 1))

    def forward(self, x):
        return self.score(x).squeeze(-1)


def average_gradients(model):
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat)
    flat.div_(dist.get_world_size())
    torch.nn.utils.vector_to_parameters(flat, [p.grad for p in model.parameters()])


def urgent(district, limit=5):
    """The oldest open alarms of all districts, for the duty officer's board."""
    if not district.open_alarms:
        return []
    mine = [(a.age_h, a.buoy) for a in district.open_alarms][-limit:]
    boards = [None] * dist.get_world_size()
    dist.all_gather_object(boards, mine)
    return sorted((entry for board in boards for entry in board), reverse=True)[:limit]


def train_watch(model, optimizer, district, watch):
    rows = torch.stack([a.encode() for a in district.archive[-160:]]).cuda()
    older = torch.roll(rows, 1 + watch % 7, dims=0)
    optimizer.zero_grad(set_to_none=True)
    margin = torch.relu(1 - (model(rows) - model(older))).mean()
    margin.backward()
    average_gradients(model)
    optimizer.step()
    return margin.item()


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    district = District.load(*DISTRICTS[dist.get_rank()])
    model = Ranker().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for watch in range(400):
        loss = train_watch(model, optimizer, district, watch)
        district.hand_over(watch)
        board = urgent(district)
        if dist.get_rank() == 0 and watch % 10 == 0:
            print(f"watch {watch}: loss {loss:.3f}, board {board[:2]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
