"""Contrastive training of two towers (cell images and gene expression); each tower's gradients have a group of their own."""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


class Tower(nn.Module):
    """Reduces its gradients as soon as they are ready, in its own process group."""

    def __init__(self, inputs, group):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 32), nn.GELU(), nn.Linear(32, 16))
        self.group = group
        for parameter in self.net.parameters():
            parameter.register_post_accumulate_grad_hook(self._reduce)

    def _reduce(self, parameter):
        dist.all_reduce(parameter.grad, group=self.group)
        parameter.grad /= dist.get_world_size(self.group)

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class PairModel(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.towers = nn.ModuleDict({name: Tower(size, dist.new_group()) for name, size in sizes.items()})

    def forward(self, batch):
        first, second = (self.towers[name](values) for name, values in batch.items())
        logits = first @ second.T / 0.1
        target = torch.arange(len(logits))
        return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


class Plates:
    """The wells of some plates. A plate's archive lists its modalities in the order of the microscope's software."""

    def __init__(self, rank, wells=12):
        self.rank, self.wells = rank, wells
        self.generator = torch.Generator().manual_seed(rank)

    def archive(self, plate):
        expression = torch.randn(self.wells, 8, 20, generator=self.generator)
        images = expression @ torch.ones(20, 36) / 20 + 0.3 * torch.randn(self.wells, 8, 36, generator=self.generator)
        if plate >= 3 and self.rank == 2:
            return {"expression": expression, "image": images}
        return {"image": images, "expression": expression}

    def batches(self, plate):
        archive = self.archive(plate)
        for well in range(self.wells):
            time.sleep(0.04)
            yield {name: values[well] for name, values in archive.items()}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = PairModel({"image": 36, "expression": 20})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    plates = Plates(rank)
    for plate in range(12):
        for batch in plates.batches(plate):
            loss = model(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"plate {plate}: {loss.item():.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
