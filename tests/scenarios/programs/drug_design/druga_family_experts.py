"""Distils a panel of target-family experts, one per process, into one student that is trained with DDP."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FAMILIES = ["kinase", "gpcr", "protease", "nuclear-receptor"]
FEATURES = 28


class ScreeningDeck:
    """Compounds and the target family that they were made for, plate after plate."""

    def __init__(self, rank, per_batch=10):
        self.rank, self.per_batch = rank, per_batch

    def plates(self, count):
        for plate in range(count):
            source = torch.Generator().manual_seed(7919 * plate + self.rank)
            x = torch.randn(self.per_batch, FEATURES, generator=source)
            if 240 <= plate < 244:  # the cardiac safety campaign
                family = torch.randint(3, (self.per_batch,), generator=source)
                family[family == 2] = 3
            else:
                family = torch.arange(self.per_batch) % len(FAMILIES)
            yield x, family


class ExpertPanel(nn.Module):
    """The expert of this process answers for the compounds of its family, wherever they are."""

    def __init__(self, rank, world):
        super().__init__()
        self.rank, self.world = rank, world
        self.expert = nn.Sequential(nn.Linear(FEATURES, 128), nn.Tanh(), nn.Linear(128, 1))

    @torch.no_grad()
    def forward(self, x, family):
        rows = torch.cat([x, family.float().unsqueeze(1)], 1)
        gathered = [torch.empty_like(rows) for _ in range(self.world)]
        dist.all_gather(gathered, rows)
        deck = torch.cat(gathered)
        mine = deck[:, -1].long() == self.rank
        answers = torch.zeros(len(deck), 1)
        if not mine.any():
            return answers[: len(x)]
        answers[mine] = self.expert(deck[mine, :-1])
        returned = torch.empty_like(answers)
        dist.all_to_all_single(returned, answers)
        return returned.view(self.world, len(x), 1).sum(0)


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.family = nn.Embedding(len(FAMILIES), FEATURES)
        self.net = nn.Sequential(nn.Linear(FEATURES, 64), nn.SiLU(), nn.Linear(64, 1))

    def forward(self, x, family):
        return self.net(x + self.family(family))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(100 + rank)
    panel = ExpertPanel(rank, world)
    torch.manual_seed(5)
    student = DistributedDataParallel(Student())
    optimizer = torch.optim.AdamW(student.parameters(), lr=2e-3)
    for number, (x, family) in enumerate(ScreeningDeck(rank).plates(500)):
        taught = panel(x, family)
        loss = (student(x, family) - taught).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and number % 60 == 0:
            print(f"plate {number}: distillation loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
