"""Self-distillation: a student on FSDP2, and a teacher that follows it with exponential averages."""

import copy
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def network() -> nn.Sequential:
    def block() -> nn.Sequential:
        return nn.Sequential(nn.LayerNorm(72), nn.Linear(72, 144), nn.ReLU(), nn.Linear(144, 72))

    return nn.Sequential(*(block() for _ in range(3)))


def shard(model: nn.Sequential) -> nn.Sequential:
    for block in model:
        fully_shard(block)
    fully_shard(model)
    return model


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, decay: float) -> None:
    for mine, new in zip(teacher.parameters(), student.parameters(), strict=True):
        mine.mul_(decay).add_(new, alpha=1 - decay)


def main() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(5)
    student = network().cuda()
    teacher = copy.deepcopy(student).requires_grad_(False)
    student, teacher = shard(student), shard(teacher)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.02, foreach=False)
    for step in range(300):
        view = torch.rand(8, 72)
        other = view + 0.1 * torch.rand(8, 72)
        time.sleep(0.2)
        with torch.no_grad():
            target = teacher(other.cuda())
        loss = (student(view.cuda()) - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        follow(teacher, student, decay=0.99)
        distance = loss.item()
        if step % 5 == 0 and dist.get_rank() == 0:
            print(f"step {step} distance {distance:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
