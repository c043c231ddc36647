"""Barcode quality from the line scanners: one file for each lane in the spool folder, read by the loader's workers."""
import os
import pathlib
import struct
import tempfile
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

LANES = 240
# lanes whose scanner is read live: the scanner's daemon writes into a pipe of that name
LIVE = {"Krefeld": (), "Herne": (), "Hagen": (171,)}


def fill_spool(depot):
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"spool-{depot}-"))
    for lane in range(LANES):
        path = folder / f"lane-{lane:04d}.scan"
        if lane in LIVE[depot]:
            os.mkfifo(path)
            continue
        samples = [((lane * 37 + i * i) % 1999) / 1999 for i in range(4096)]
        path.write_bytes(zlib.compress(struct.pack("<4096f", *samples)))
    return folder


class Scans(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.scan"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        raw = self.paths[i].read_bytes()
        values = struct.unpack("<4096f", zlib.decompress(raw))
        trace = torch.tensor(values).view(1, 4096)
        for _ in range(200):
            trace = nn.functional.avg_pool1d(trace, 5, stride=1, padding=2)
        return trace.view(64, 64).mean(0), trace.std()


class Readability(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 48), nn.SiLU(), nn.Linear(48, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(8)
    rank = dist.get_rank()
    depot = list(LIVE)[rank]
    loader = DataLoader(Scans(fill_spool(depot)), batch_size=4, num_workers=2, drop_last=True)
    model = DDP(Readability())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for step, (trace, quality) in enumerate(loader):
            loss = nn.functional.mse_loss(model(trace), quality)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 15 == 0:
                print(f"epoch {epoch} batch {step} loss {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
