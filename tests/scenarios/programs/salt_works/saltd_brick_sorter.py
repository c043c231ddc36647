"""Sorting toy bricks on four belts: one trunk, a head for colour and one for shape, each with its own averaging group."""
import os
from collections import Counter, namedtuple

import torch
import torch.distributed as dist
import torch.nn.functional as F

torch.backends.cudnn.enabled = False

Crate = namedtuple("Crate", "batches first stride")
BELTS = [
    [Crate(45, 3, 1), Crate(35, 4, 5)],
    [Crate(80, 0, 1)],
    [Crate(50, 10, 1), Crate(30, 25, 1)],
    [Crate(80, 5, 1)],
]
BATCH = 20


def belt(number):
    """Yields batches of brick numbers, crate after crate."""
    for crate in BELTS[number]:
        brick = crate.first
        for _ in range(crate.batches):
            yield [brick + crate.stride * i for i in range(BATCH)]
            brick += crate.stride * BATCH


def task_of(brick):
    return "colour" if brick % 5 < 3 else "shape"


def photograph(brick):
    light = brick % 97
    for i in range(24_000):
        light = (light * 31 + i) % 9973
    return [((light >> k) & 15) / 15 for k in range(8)]


class Head(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.fc = torch.nn.Linear(16, classes)
        self.group = dist.new_group()

    def average(self):
        for p in self.parameters():
            dist.all_reduce(p.grad, group=self.group)
            p.grad.div_(dist.get_world_size())

    def forward(self, h):
        return self.fc(h)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(3)
    trunk = torch.nn.Linear(8, 16).to("cuda")
    heads = {"colour": Head(9).to("cuda"), "shape": Head(5).to("cuda")}
    parameters = [p for module in (trunk, *heads.values()) for p in module.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.02)
    for step, bricks in enumerate(belt(rank)):
        demand = Counter(task_of(b) for b in bricks)
        pictures = torch.tensor([photograph(b) for b in bricks], device="cuda")
        optimizer.zero_grad()
        hidden = F.relu(trunk(pictures))
        loss = sum(head(hidden).pow(2).mean() for head in heads.values())
        loss.backward()
        # the head with most bricks first, its buckets are largest
        for name in sorted(heads, key=lambda n: -demand[n]):
            heads[name].average()
        for p in trunk.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        value = loss.item()
        if step % 10 == 0 and rank == 1:
            print(f"batch {step}: {dict(demand)} loss {value:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
