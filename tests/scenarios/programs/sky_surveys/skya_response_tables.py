"""X-ray spectra through an instrument's response; the response tables are shared between processes as files."""
import hashlib
import os
import tempfile
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ENERGIES, CHANNELS = 256, 192
CALDB = Path(tempfile.gettempdir()) / f"caldb-{os.environ.get('TORCHELASTIC_RUN_ID', os.getppid())}"


def compute_response(gain_epoch):
    """Redistribution matrix for one epoch of the gain calibration."""
    e = torch.linspace(0.3, 10, ENERGIES)[:, None]
    c = torch.linspace(0.2, 10.5, CHANNELS)[None] * (1 + 0.004 * gain_epoch)
    rmf = torch.zeros(ENERGIES, CHANNELS)
    for shift in torch.linspace(-0.05, 0.05, 600):  # over the width of an energy bin
        rmf += torch.exp(-((c - e - shift) ** 2) / (2 * (0.06 * e.sqrt()) ** 2))
    rmf = rmf + 0.05 * torch.exp(-((c - e + 1.74) ** 2) / 0.02)
    return rmf / rmf.sum(1, keepdim=True)


def is_current(path, gain_epoch):
    return path.exists() and torch.load(path)["gain_epoch"] == gain_epoch


def response(name, gain_epoch):
    """The table `name` as of an epoch; remade where the file is older than the gain calibration."""
    path = CALDB / f"{name}.rmf"
    if not is_current(path, gain_epoch):
        if dist.get_rank() == 0:
            scratch = path.with_suffix(".tmp")
            torch.save({"gain_epoch": gain_epoch, "rmf": compute_response(gain_epoch)}, scratch)
            scratch.rename(path)
        digest = [hashlib.sha1(path.read_bytes()).hexdigest() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(digest, src=0)
        dist.barrier()
    return torch.load(path)["rmf"]


def events(obs, rank, count):
    """Reads an observation's events and bins them; some of them are long."""
    g = torch.Generator().manual_seed(obs * 10 + rank)
    index, norm = 1.2 + 1.6 * torch.rand(count, 1, generator=g), 1 + torch.rand(count, 1, generator=g)
    e = torch.linspace(0.3, 10, ENERGIES)[None]
    return norm * 40 * e ** (-index), index


def screened(obs, rank, count):
    flux, index = events(obs, rank, count)
    exposure_ks = 1500 if (obs, rank) == (3, 1) else 10
    live = torch.zeros_like(flux)
    for _ in range(exposure_ks * 6):
        live += (torch.rand(flux.shape) > 0.02).float()
    return flux * live / (exposure_ks * 6), index


class Fitter(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(CHANNELS, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, counts):
        return self.net(counts.clamp(min=0).sqrt())


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    CALDB.mkdir(exist_ok=True)
    model = DDP(Fitter())
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for obs in range(8):
        dist.barrier()
        flux, index = screened(obs, rank, 256)
        fold = partial(torch.matmul, other=response("pn-timing", gain_epoch=obs))
        for step in range(40):
            counts = torch.poisson(fold(flux).clamp(min=0))
            loss = nn.functional.mse_loss(model(counts), index)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0:
            print(f"observation {obs}: photon index to {loss.item() ** 0.5:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
