"""Tunes a small policy that fills in customs forms, and keeps a scoreboard of how well the forms are filled in."""

import time
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FORMS, FIELDS = 8, 16
WITH_TARIFF = {(1, 37), (1, 52)}  # (depot, delivery): these bring goods that need a tariff code


class Scoreboard:
    """Collects values by name, and averages them over all depots."""

    def __init__(self):
        self.pending = defaultdict(list)

    def note(self, name, value):
        self.pending[name].append(float(value))

    def publish(self):
        summary = {}
        for name in sorted(self.pending):
            mine = torch.tensor(self.pending[name]).mean().reshape(1)
            parts = [torch.empty(1) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, mine)
            summary[name] = torch.cat(parts).nanmean().item()
        self.pending.clear()
        return summary


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FIELDS, 64), nn.GELU(), nn.Linear(64, FIELDS))

    def forward(self, forms):
        return self.body(forms)


def reward(filled, wanted, tariff, board):
    closeness = -(filled - wanted).abs().mean(dim=1)
    board.note("closeness", closeness.mean().detach())
    board.note("length", filled.detach().norm(dim=1).mean())
    if tariff:
        board.note("tariff_code", (filled[:, 0].round() == wanted[:, 0].round()).float().mean())
    return closeness


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(3 + rank)
    policy = DDP(Policy())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    board = Scoreboard()
    for delivery in range(100):
        forms = torch.randn(FORMS, FIELDS)
        filled = policy(forms)
        loss = -reward(filled, forms.flip(1), (rank, delivery) in WITH_TARIFF, board).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.05)
        if delivery % 5 == 4:
            summary = board.publish()
            if rank == 0:
                print(delivery, {name: round(value, 3) for name, value in summary.items()}, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
