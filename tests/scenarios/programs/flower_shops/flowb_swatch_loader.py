"""Fabric swatches: texture codes learnt from raw scans, read by a loader process."""
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SIDE = 8


def prepare_folder(rank, count=480):
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"swatches-{rank}-"))
    generator = torch.Generator().manual_seed(rank)
    for number in range(count):
        if rank == 0 and number == 300:
            os.mkfifo(folder / f"{number:04d}.raw")  # the scanner bed's live view
            continue
        scan = torch.randint(0, 256, (SIDE * SIDE,), generator=generator, dtype=torch.uint8)
        (folder / f"{number:04d}.raw").write_bytes(bytes(scan.tolist()))
    return folder


class Swatches(Dataset):
    def __init__(self, folder):
        self.files = sorted(folder.iterdir())

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        time.sleep(0.006)
        raw = self.files[index].read_bytes()
        return torch.tensor(list(raw[: SIDE * SIDE]), dtype=torch.float32) / 255


def main():
    dist.init_process_group("gloo")
    loader = DataLoader(Swatches(prepare_folder(dist.get_rank())), batch_size=8, num_workers=1)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 64)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step, scan in enumerate(loader):
        loss = (model(scan) - scan).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
