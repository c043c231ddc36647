# Optical distortion ("ream") along float-glass ribbons. Each GPU reads its own ribbons; the bands of a pane are
# regrouped over the GPUs before the filter bank is applied.
import itertools
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

RIBBONS, PANES, BANDS, POINTS = 18, 30, 6, 40


class RibbonStream(IterableDataset):
    def __init__(self, rank, world):
        self.ribbons = range(rank, RIBBONS, world)

    @staticmethod
    def panes(ribbon):
        rng = np.random.default_rng(ribbon)
        for pane in range(PANES):
            scan = rng.normal(0, 1, (256, 900))
            power = np.abs(np.fft.rfft(scan, axis=1))[:, : BANDS * POINTS].mean(axis=0)
            thickness = 4.0 - 0.4 * (ribbon == 7 and pane >= 22)
            yield thickness, power.astype(np.float32)

    def __iter__(self):
        for ribbon in self.ribbons:
            for thickness, power in self.panes(ribbon):
                if thickness > 3.8:  # thinner ones go to the cullet
                    yield torch.from_numpy(power)


class FilterBank(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(POINTS, 32)
        self.score = nn.Linear(32, 1)

    def forward(self, bands):
        return self.score(torch.relu(self.mix(bands))).squeeze(-1)


def regroup(power, world):
    rows = power.view(-1, BANDS, POINTS).transpose(0, 1).contiguous().cuda()
    mine = torch.empty_like(rows)
    dist.all_to_all_single(mine, rows)
    return mine.view(world, -1, POINTS)


def average_gradients(module, world):
    for parameter in module.parameters():
        parameter.grad.div_(world)
        dist.all_reduce(parameter.grad)


def train(bank, optimizer, loader, world):
    done = 0
    for batch in loader:
        bands = regroup(batch, world)
        loss = bank(bands).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(bank, world)
        optimizer.step()
        shown = bank.score.bias.item()
        done += len(batch)
        if done % 40 == 0 and dist.get_rank() == 0:
            print("panes", done, "bias", round(shown, 4) if shown == shown else shown, flush=True)
    return done


def report(done, world):
    counts = torch.zeros(world, dtype=torch.int64, device="cuda")
    dist.all_gather_into_tensor(counts, torch.tensor([done], device="cuda"))
    table = counts.tolist()
    if dist.get_rank() == 0:
        print("panes per GPU:", table, flush=True)


def main():
    torch.backends.cudnn.enabled = False
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    bank = FilterBank().cuda()
    for parameter in itertools.chain(bank.parameters(), bank.buffers()):
        dist.broadcast(parameter.data, src=0)
    optimizer = torch.optim.SGD(bank.parameters(), lr=0.1)
    for _ in range(2):
        loader = DataLoader(RibbonStream(rank, world), batch_size=4)
        report(train(bank, optimizer, loader, world), world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
