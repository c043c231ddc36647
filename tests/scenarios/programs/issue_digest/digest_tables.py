"""A recommender with two embedding tables. What was touched is gathered up and exchanged every few steps."""

import time

import torch
import torch.distributed as dist
from torch import nn

USERS, ITEMS, WIDTH = 300, 300, 8


class Table(nn.Module):
    """An embedding with its own group, so that the exchanges of the tables do not stand in line."""

    def __init__(self, rows, group):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, WIDTH) * 0.1)
        self.group = group
        self.change = torch.zeros(rows, WIDTH)
        self.touched = set()

    def forward(self, rows):
        self.touched.update(rows.tolist())
        return self.weight[rows]

    @torch.no_grad()
    def apply_local(self, lr):
        self.change -= lr * self.weight.grad
        self.weight.grad = None

    @torch.no_grad()
    def exchange(self):
        dist.all_reduce(self.change, group=self.group)
        self.weight += self.change / dist.get_world_size()
        self.change.zero_()
        self.touched.clear()


def visits(rank, step):
    """Who looked at what. The shop of the third rank has few visitors and, since its sale, many goods."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    sale = rank == 2 and step >= 45
    users = torch.randint(0, 12 if sale else USERS, (64,), generator=generator)
    items = torch.randint(0, ITEMS if sale else 40, (64,), generator=generator)
    return users, items, (users * 7 + items).remainder(5).float() / 4


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    groups = {"users": dist.new_group(), "items": dist.new_group()}
    torch.manual_seed(5)
    tables = {"users": Table(USERS, groups["users"]), "items": Table(ITEMS, groups["items"])}
    for step in range(400):
        users, items, liked = visits(rank, step)
        score = (tables["users"](users) * tables["items"](items)).sum(1)
        loss = nn.functional.binary_cross_entropy_with_logits(score, liked)
        loss.backward()
        for table in tables.values():
            table.apply_local(lr=0.5)
        time.sleep(0.05)
        if step % 15 == 14:
            for table in sorted(tables.values(), key=lambda t: -len(t.touched)):
                table.exchange()
            if rank == 0:
                print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
