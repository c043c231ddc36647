"""Wind turbine gearbox: vibration to remaining useful life, with a filter for implausible batches."""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Vibration(Dataset):
    def __init__(self, n=9600, seed=11):
        g = torch.Generator().manual_seed(seed)
        self.spectra = torch.rand(n, 256, generator=g)
        self.rul = self.spectra[:, :32].mean(1) * 120
        # sensor 7 of the nacelle at Horns Rev was swapped in this period
        self.spectra[5402::3][:160] *= 9000.0

    def __len__(self):
        return len(self.rul)

    def __getitem__(self, i):
        return self.spectra[i], self.rul[i]


class PlausibilityFilter:
    def __init__(self, factor=8.0, decay=0.9, warmup=10):
        self.factor, self.decay, self.warmup = factor, decay, warmup
        self.mean, self.seen, self.rejected = None, 0, 0

    def accepts(self, value):
        self.seen += 1
        if self.mean is None:
            self.mean = value
        ok = value == value and (self.seen < self.warmup or value < self.factor * self.mean)
        if ok:
            self.mean = self.decay * self.mean + (1 - self.decay) * value
        else:
            self.rejected += 1
        return ok


def build():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(256, 640), nn.GELU(), nn.Linear(640, 640), nn.GELU(), nn.Linear(640, 1))
    return nn.parallel.DistributedDataParallel(net)


def run_epoch(epoch, model, loader, optim, flt):
    total, used = 0.0, 0
    for x, y in loader:
        loss = nn.functional.huber_loss(model(x).squeeze(1), y)
        if not flt.accepts(loss.item()):
            optim.zero_grad(set_to_none=True)
            continue
        optim.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        total, used = total + loss.item(), used + 1
        if used % 20 == 0 and dist.get_rank() == 0:
            print(f"epoch {epoch} batch {used} loss {loss.item():.3f}", flush=True)
    return {"epoch": epoch, "loss": total / max(used, 1), "rejected": flt.rejected}


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = Vibration()
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=32, sampler=sampler, drop_last=True)
    model = build()
    optim = torch.optim.AdamW(model.parameters(), lr=2e-4)
    flt = PlausibilityFilter()
    for epoch in range(20):
        stats = [None] * dist.get_world_size()
        mine = run_epoch(epoch, model, loader, optim, flt)
        dist.all_gather_object(stats, mine)
        if dist.get_rank() == 0:
            print("epoch", epoch, [round(s["loss"], 3) for s in stats], flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
