"""Flour protein from near-infrared spectra: mills deliver different numbers of samples, DDP's join takes care of it."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

# (samples kept in the archive, fresh samples that come from the spectrometer one after another)
MILLS = ((40, 17), (40, 16), (40, 0))
SCAN_SECONDS = 0.8


def spectra(mill):
    archived, fresh = MILLS[mill]
    gen = torch.Generator().manual_seed(mill)
    for k in range(archived + fresh):
        time.sleep(0.04 if k < archived else SCAN_SECONDS)
        x = torch.rand(8, 64, generator=gen)
        yield x, x[:, 20:24].mean(1, keepdim=True)


def epoch(model, opt, mill):
    done = 0
    with model.join():
        for x, protein in spectra(mill):
            loss = nn.functional.mse_loss(model(x), protein)
            opt.zero_grad()
            loss.backward()
            opt.step()
            done += 1
    return done


def check(model, mill):
    gen = torch.Generator().manual_seed(900 + mill)
    x = torch.rand(32, 64, generator=gen)
    with torch.no_grad():
        error = (model.module(x) - x[:, 20:24].mean(1, keepdim=True)).abs().mean()
    dist.all_reduce(error)
    return error.item() / dist.get_world_size()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mill = dist.get_rank()
    torch.manual_seed(12)
    model = DDP(nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    done = epoch(model, opt, mill)
    print(f"mill {mill}: {done} batches", flush=True)
    for _ in range(20):
        time.sleep(0.05)
        error = check(model, mill)
    print(f"mill {mill}: mean error {error:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
