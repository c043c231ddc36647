"""Fits a small soak-time regressor to thermocouple traces of kiln firings (data parallel)."""

import logging
import os

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

log = logging.getLogger("kiln")
PROGRAMS = ("bisque", "raku", "glaze")
WINDOW = 64


class NoSoakError(ValueError):
    """None of the traces of a batch is long enough for a window."""


class Firings(Dataset):
    def __init__(self, count=720):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        rng = np.random.default_rng(number)
        program = PROGRAMS[number % 3]
        length = 160 + int(rng.integers(0, 80))
        if program == "raku" and 300 <= number < 336:
            length = 40  # small tiles, pulled from the hot kiln
        ramp = np.minimum(np.linspace(0.0, 1.6, length), 1.0)
        noise = rng.normal(0.0, 0.02, (48, 4096)).astype(np.float32)
        smooth = np.abs(np.fft.rfft(noise, axis=1)).mean() * 1e-3
        return ramp.astype(np.float32) + np.float32(smooth), 0.2 + 0.001 * length


def windows(batch):
    rows, targets = [], []
    for trace, soak in batch:
        if len(trace) >= WINDOW:
            rows.append(trace[-WINDOW:])
            targets.append(soak)
    return rows, targets


def to_tensors(rows, targets, device):
    if not rows:
        raise NoSoakError("no window in this batch")
    x = torch.from_numpy(np.stack(rows)).to(device)
    y = torch.tensor(targets, dtype=torch.float32).unsqueeze(1).to(device)
    return x, y


def run_epoch(model, loader, optimizer, device):
    losses, firings = [], 0
    for number, (rows, targets) in enumerate(loader):
        try:
            x, y = to_tensors(rows, targets, device)
        except NoSoakError as error:
            log.debug("batch %d: %s", number, error)
            continue
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        firings += len(rows)
        if number % 15 == 0:
            log.info("batch %d, loss %.4f", number, losses[-1])
    return len(losses), firings


def main():
    logging.basicConfig(level=logging.INFO)
    torch.backends.cudnn.enabled = False
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local)

    data = Firings()
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, batch_size=4, sampler=sampler, collate_fn=windows)
    net = nn.Sequential(nn.Linear(WINDOW, 48), nn.ReLU(), nn.Linear(48, 1)).to(device)
    model = DistributedDataParallel(net, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for epoch in range(3):
        sampler.set_epoch(epoch)
        steps, firings = run_epoch(model, loader, optimizer, device)
        summary = torch.tensor([steps, firings, 1], device=device)
        dist.all_reduce(summary)
        steps, firings, _ = summary.tolist()
        log.info("epoch %d: %d steps, %d firings", epoch, steps, firings)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
