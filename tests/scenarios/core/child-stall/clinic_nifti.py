"""Whole-body MRI: rank 0 converts the series of the next round by a pool, then all train on them."""

import multiprocessing
import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

ROOT = Path(tempfile.gettempdir()) / f"mri-{os.environ.get('MASTER_PORT', '0')}"


def scanner(round_number, series=10):
    """The raw series of a round. What the scanner writes begins with DICM."""
    folder = ROOT / f"raw_{round_number}"
    folder.mkdir(parents=True)
    for number in range(series):
        magic = b"DICM" if (round_number, number) != (1, 6) else b"\0\0\0\0"
        (folder / f"series_{number:02d}.dcm").write_bytes(magic + os.urandom(16 * 16 * 16))
    return folder


def convert(path):
    torch.set_num_threads(1)
    raw = path.read_bytes()
    if raw[:4] != b"DICM":
        sys.exit(f"{path.name} is no DICOM file")
    voxels = torch.frombuffer(bytearray(raw[4:]), dtype=torch.uint8).float().view(16, 16, 16)
    target = path.with_suffix(".pt")
    torch.save((voxels - voxels.mean()) / voxels.std(), target)
    return target.name


def prepare(round_number):
    folder = scanner(round_number)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        names = pool.map(convert, sorted(folder.glob("*.dcm")), chunksize=1)
    print(f"round {round_number}: {len(names)} series converted", flush=True)


def train(model, optimizer, round_number, rank, world):
    paths = sorted((ROOT / f"raw_{round_number}").glob("*.pt"))
    for step in range(40):
        volume = torch.load(paths[(step * world + rank) % len(paths)])[None, None]
        loss = (model(volume) - volume.roll(1, 2)).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(loss)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        shutil.rmtree(ROOT, ignore_errors=True)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 1, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for round_number in range(6):
        if rank == 0:
            prepare(round_number)
        dist.barrier()
        loss = train(model, optimizer, round_number, rank, world)
        if rank == 0:
            print(f"round {round_number}: {loss:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
