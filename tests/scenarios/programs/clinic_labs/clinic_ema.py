"""Self-distillation on EEG: a student follows the moving average of itself, the teacher."""

import copy
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


def encoder():
    return nn.Sequential(nn.Conv1d(8, 24, 7, padding=3), nn.GELU(), nn.Conv1d(24, 24, 7, padding=3), nn.GELU(), nn.Conv1d(24, 12, 1))


@dataclass
class Teacher:
    """Moves a little towards the student at each step; every so many recordings rank 0's is taken by all."""

    net: nn.Module
    momentum: float = 0.99
    interval: int = 900
    seen: int = 0
    due: int = field(init=False)

    def __post_init__(self):
        self.due = self.interval
        self.net.requires_grad_(False)

    @torch.no_grad()
    def follow(self, student, recordings):
        for slow, fast in zip(self.net.parameters(), student.parameters()):
            slow.lerp_(fast, 1 - self.momentum)
        self.seen += recordings
        if self.seen >= self.due:
            self.due += self.interval
            self.share()

    def share(self):
        weights = parameters_to_vector(self.net.parameters())
        dist.broadcast(weights, src=0)
        vector_to_parameters(weights, self.net.parameters())


class EqualTimeBatches:
    """Recordings are put together up to a number of samples, so a batch of short ones has more of them."""

    def __init__(self, rank, budget=3600):
        self.generator = torch.Generator().manual_seed(rank)
        self.lengths = {0: 225, 1: 225, 2: 200}[rank]  # the amplifier of site 2 stops earlier
        self.count = budget // self.lengths

    def __iter__(self):
        while True:
            yield torch.randn(self.count, 8, self.lengths, generator=self.generator)


def synchronise(student, world):
    flat = torch.cat([p.grad.reshape(-1) for p in student.parameters()])
    dist.all_reduce(flat)
    start = 0
    for p in student.parameters():
        p.grad = (flat[start : start + p.numel()] / world).view_as(p)
        start += p.numel()


def train(steps=4000):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(8)
    student = encoder()
    teacher = Teacher(copy.deepcopy(student))
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
    for step, eeg in zip(range(steps), EqualTimeBatches(rank)):
        noisy = eeg + 0.2 * torch.randn(eeg.shape)
        with torch.no_grad():
            target = teacher.net(eeg).softmax(1)
        loss = -(target * student(noisy).log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        synchronise(student, world)
        optimizer.step()
        teacher.follow(student, len(eeg))
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: {float(loss):.4f}, {teacher.seen} recordings", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()
