"""Plankton images to experts: one expert per GPU, images travel to theirs by all_to_all_single and back."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)

FEATURES = 24


def exchange_counts(counts):
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts)
    return arriving.tolist()


class Experts(nn.Module):
    def __init__(self, world):
        super().__init__()
        self.world = world
        self.expert = nn.Linear(FEATURES, FEATURES)

    def forward(self, images, owner):
        if len(images) == 0:
            return images
        order = sorted(range(len(owner)), key=owner.__getitem__)
        leaving = [owner.count(e) for e in range(self.world)]
        arriving = exchange_counts(torch.tensor(leaving, device=images.device))
        mine = images.new_empty(sum(arriving), FEATURES)
        dist.all_to_all_single(mine, images[order].contiguous(), arriving, leaving)
        with torch.no_grad():
            answered = self.expert(mine)
        back = images.new_empty(len(images), FEATURES)
        dist.all_to_all_single(back, answered.contiguous(), leaving, arriving)
        return back


def net_haul(rank, haul):
    """The images of one haul, and whose expert each is for. Under thick ice the net comes up empty."""
    size = 0 if (rank == 1 and haul == 37) else 6 + (haul + rank) % 5
    return torch.rand(size, FEATURES), [(i + haul) % 3 for i in range(size)]


def reduce_gradients(module, world):
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(world)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", local)
    experts = Experts(world).to(device)
    head = nn.Linear(FEATURES, 5).to(device)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
    sorted_images = torch.zeros(1, device=device)
    for haul in range(90):
        time.sleep(0.06)
        images, owner = net_haul(rank, haul)
        described = experts(images.to(device), owner)
        optimizer.zero_grad()
        head(described).sum().backward()
        reduce_gradients(head, world)
        optimizer.step()
        sorted_images += len(images)
        if haul % 15 == 0 and rank == 0:
            print(f"haul {haul}: {sorted_images.item():.0f} images", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
