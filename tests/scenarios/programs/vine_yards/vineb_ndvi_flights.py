"""Vigour maps (NDVI) from multispectral flights; flights are dealt out to the ranks, telemetry lies beside the images."""
import os
import pathlib
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHOTS = 160
FLIGHTS = [f"{valley}-{n:02d}" for n in range(5) for valley in ("douro", "mosel", "wachau")]
LIVE = {"wachau-03"}  # still relayed by the ground station when the archive was made


def unpack(root, flight):
    folder = root / flight
    folder.mkdir(parents=True)
    g = np.random.default_rng(len(flight) * 100 + FLIGHTS.index(flight))
    np.save(folder / "bands.npy", g.random((SHOTS, 5, 24, 24), dtype=np.float32))
    telemetry = folder / "telemetry.csv"
    if flight in LIVE:
        os.mkfifo(telemetry)
    else:
        rows = g.random((SHOTS, 3))
        telemetry.write_text("\n".join(",".join(f"{v:.4f}" for v in row) for row in rows))
    return folder


class Flights(Dataset):
    def __init__(self, folders):
        self.folders = folders
        self.sun = {}

    def __len__(self):
        return len(self.folders) * SHOTS

    def irradiance(self, folder):
        if folder not in self.sun:
            lines = (folder / "telemetry.csv").read_text().splitlines()
            self.sun[folder] = [float(line.split(",")[2]) for line in lines]
        return self.sun[folder]

    def __getitem__(self, i):
        folder, shot = self.folders[i // SHOTS], i % SHOTS
        bands = np.load(folder / "bands.npy", mmap_mode="r")[shot].copy()
        bands /= 0.5 + self.irradiance(folder)[shot]
        ndvi = (bands[4] - bands[2]) / (bands[4] + bands[2] + 1e-3)
        return torch.from_numpy(bands), torch.from_numpy(ndvi).unsqueeze(0)


class Vigour(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.a = nn.Conv2d(5, width, 3, padding=1)
        self.b = nn.Conv2d(width, width, 3, padding=1)
        self.c = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        return self.c(F.relu(self.b(F.relu(self.a(x)))))


def run():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    root = pathlib.Path(tempfile.mkdtemp(prefix=f"flights{rank}-"))
    folders = [unpack(root, f) for f in FLIGHTS[rank::world]]
    loader = DataLoader(Flights(folders), batch_size=4, num_workers=2, prefetch_factor=2)
    net = nn.parallel.DistributedDataParallel(Vigour())
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    for survey in range(3):
        for n, (bands, ndvi) in enumerate(loader):
            loss = F.smooth_l1_loss(net(bands), ndvi)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if n % 16 == 0 and rank == 0:
                print(f"survey {survey} batch {n} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    run()
