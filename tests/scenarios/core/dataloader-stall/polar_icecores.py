"""Dust layers in ice core scans. Scans come in pinned memory from a worker, some through the archive's pipe."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

torch.set_num_threads(1)

PIXELS = 96


class CoreScans(Dataset):
    """Scans by depth. What is not on disk is asked for through the pipe of the tape archive."""

    def __init__(self, metres, archive, on_tape):
        self.metres, self.archive, self.on_tape = metres, archive, on_tape

    def __len__(self):
        return self.metres

    def _from_tape(self, depth):
        with open(self.archive, "rb") as pipe:
            return torch.frombuffer(bytearray(pipe.read(PIXELS)), dtype=torch.uint8).float() / 255

    def __getitem__(self, depth):
        if depth in self.on_tape:
            return self._from_tape(depth), depth
        generator = torch.Generator().manual_seed(depth)
        return torch.rand(PIXELS, generator=generator), depth


def open_archive(rank):
    path = os.path.join(tempfile.gettempdir(), f"archive-{os.environ['MASTER_PORT']}-{rank}")
    if not os.path.exists(path):
        os.mkfifo(path)
    return path


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", local)
    scans = CoreScans(1200, open_archive(rank), on_tape={613})
    sampler = DistributedSampler(scans, world, rank, shuffle=False)
    loader = DataLoader(scans, batch_size=8, sampler=sampler, num_workers=1, pin_memory=True, prefetch_factor=2)
    network = nn.Sequential(nn.Linear(PIXELS, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(network, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    deepest = torch.zeros((), dtype=torch.int64, device=device)
    for number, (scan, depth) in enumerate(loader):
        scan, depth = scan.to(device, non_blocking=True), depth.to(device, non_blocking=True)
        loss = (model(scan).squeeze(1) - depth / 1000).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        deepest.fill_(number * 8 * world)
        time.sleep(0.05)
        if number % 10 == 0:
            print(f"rank {rank}: {deepest.item()} m", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
