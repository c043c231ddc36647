"""Tumour segmentation on patches: half of the patches of a batch have to contain tumour."""

import random
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

SIZE, PATCH = 40, 12


@dataclass
class Case:
    image: torch.Tensor
    tumour: torch.Tensor


def read_case(rank, number):
    generator = torch.Generator().manual_seed(rank * 500 + number)
    image = torch.randn(SIZE, SIZE, SIZE, generator=generator)
    tumour = torch.zeros(SIZE, SIZE, SIZE)
    resected = (rank, number) == (2, 5)  # a scan after surgery
    if not resected:
        z, y, x = torch.randint(6, SIZE - 10, (3,), generator=generator).tolist()
        tumour[z : z + 8, y : y + 8, x : x + 8] = 1
    return Case(image + tumour, tumour)


class PatchSampler:
    def __init__(self, seed, positive=0.5):
        self.random = random.Random(seed)
        self.positive = positive

    def corner(self):
        return [self.random.randrange(SIZE - PATCH) for _ in range(3)]

    def draw(self, case, wants_tumour):
        while True:
            z, y, x = self.corner()
            box = (slice(z, z + PATCH), slice(y, y + PATCH), slice(x, x + PATCH))
            if not wants_tumour or case.tumour[box].any():
                return case.image[box], case.tumour[box]

    def batch(self, case, size=6):
        pairs = [self.draw(case, wants_tumour=i < size * self.positive) for i in range(size)]
        images, masks = zip(*pairs)
        return torch.stack(images)[:, None], torch.stack(masks)[:, None]


def network(width=8):
    torch.manual_seed(0)
    layers = []
    for inputs in (1, width):
        layers += [nn.Conv3d(inputs, width, 3, padding=1), nn.InstanceNorm3d(width), nn.LeakyReLU()]
    return nn.Sequential(*layers, nn.Conv3d(width, 1, 1))


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    sampler = PatchSampler(seed=rank)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for number in range(200):
        case = read_case(rank, number)
        for _ in range(6):
            image, mask = sampler.batch(case)
            logits = model(image)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"case {number}: {float(loss):.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
