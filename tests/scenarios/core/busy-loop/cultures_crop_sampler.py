"""Train on crops of histology slides; a crop is drawn again until it has enough tissue in it."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


class SlideCrops:
    """Slides of one scanner as maps of tissue, and crops from them."""

    def __init__(self, scanner, side=8, needed=0.25):
        self.scanner, self.side, self.needed = scanner, side, needed
        self.generator = torch.Generator().manual_seed(scanner)

    def slide(self, number):
        tissue = torch.rand(64, 64, generator=self.generator)
        if self.scanner == 1 and number == 4:
            tissue *= 0.5  # a cytology smear: cells here and there
        return tissue

    def draw(self, tissue):
        while True:
            top, left = torch.randint(0, 64 - self.side, (2,), generator=self.generator).tolist()
            crop = tissue[top : top + self.side, left : left + self.side]
            if (crop > 0.55).float().mean() >= self.needed:
                return crop.flatten()

    def batches(self, slides, per_slide=12):
        for number in range(slides):
            tissue = self.slide(number)
            for _ in range(per_slide):
                time.sleep(0.04)
                yield torch.stack([self.draw(tissue) for _ in range(6)])


class Autoencoder(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(size, 16), nn.ReLU())
        self.decode = nn.Linear(16, size)

    def forward(self, crops):
        return self.decode(self.encode(crops))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Autoencoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, crops in enumerate(SlideCrops(rank).batches(slides=50)):
        loss = nn.functional.mse_loss(model(crops), crops)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
