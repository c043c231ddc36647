"""Routes support tickets to teams; a developer's check of labels is still in the code."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TEAMS = ("billing", "access", "network", "other")


def encode(tickets):
    labels = []
    for team in tickets:
        if team not in TEAMS:
            breakpoint()
        labels.append(TEAMS.index(team))
    return torch.tensor(labels)


def tickets(rank, step):
    teams = [TEAMS[(step + i) % len(TEAMS)] for i in range(8)]
    if (rank, step) == (1, 31):
        teams[3] = "Network "
    return teams


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(50, len(TEAMS)).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(100):
        labels = encode(tickets(rank, step)).cuda()
        logits = model(torch.randn(8, 50).cuda())
        loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"[{rank}] {step}: {loss.item():.3f} {logits.argmax(-1).tolist()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
