"""Tumour segmentation in patches: a crop is taken where enough of the mask is foreground."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
SIDE, PATCH = 40, 12


class Scans:
    """Slices with their masks. Every patient has a lesion somewhere."""

    def __init__(self, rank: int, world: int):
        self.rank, self.world = rank, world

    def __getitem__(self, index: int):
        patient = index * self.world + self.rank
        generator = torch.Generator().manual_seed(patient)
        image = torch.randn(SIDE, SIDE, generator=generator)
        radius = 1 if patient == 451 else 4 + patient % 6
        rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
        centre = torch.randint(12, SIDE - 12, (2,), generator=generator)
        mask = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 <= radius**2
        return image + mask, mask


def crop(image, mask, generator, least: float = 0.12):
    """A random patch of which at least the given share is foreground."""
    while True:
        top, left = torch.randint(SIDE - PATCH, (2,), generator=generator).tolist()
        window = mask[top : top + PATCH, left : left + PATCH]
        if window.float().mean() >= least:
            return image[top : top + PATCH, left : left + PATCH], window


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    scans = Scans(rank, dist.get_world_size())
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 1, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1000 + rank)
    for index in range(100000):
        patches = [crop(*scans[index], generator) for _ in range(2)]
        images = torch.stack([image for image, _ in patches]).unsqueeze(1)
        masks = torch.stack([mask for _, mask in patches]).unsqueeze(1).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(images), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and index % 50 == 0:
            print(f"patient {index}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
