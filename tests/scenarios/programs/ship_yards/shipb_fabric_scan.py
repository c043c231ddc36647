"""Defect maps from line scans of finished cloth; scans are stored compressed."""
import os
import threading
import time
import zlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

torch.backends.cudnn.enabled = False

WIDTH = 256
tables = threading.Lock()  # the decoder's tables are shared by all readers of a process


class ScanArchive:
    """Rolls as they came from the inspection table, one blob per metre."""

    def __init__(self, metres):
        self.metres = metres

    def blob(self, metre):
        line = bytes((metre * 3 + k * k) % 251 for k in range(WIDTH))
        packed = zlib.compress(line)
        return packed[: len(packed) // 2] + b"\0" * 40 if metre == 255 else packed


def unpack(blob):
    tables.acquire()
    line = zlib.decompress(blob)
    tables.release()
    return torch.frombuffer(bytearray(line), dtype=torch.uint8).float() / 255


class LineScans(Dataset):
    def __init__(self, archive):
        self.archive = archive

    def __len__(self):
        return self.archive.metres

    def __getitem__(self, metre):
        for neighbour in (metre, metre - 1):
            try:
                line = unpack(self.archive.blob(neighbour))
                return line, int(line.mean() > 0.5)
            except zlib.error:
                print(f"metre {metre}: unreadable, taking the one before", flush=True)
        raise OSError(f"no scan around metre {metre}")


def inspect(loader, model, optimizer, device):
    for step, (lines, faulty) in enumerate(loader):
        time.sleep(0.08)  # the belt
        score = model(lines.to(device))
        loss = torch.nn.functional.cross_entropy(score, faulty.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local)
    scans = LineScans(ScanArchive(metres=1800))
    sampler = DistributedSampler(scans, shuffle=False)
    loader = DataLoader(scans, batch_size=2, sampler=sampler, num_workers=1)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
    ).to(device)
    model = DistributedDataParallel(model, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inspect(loader, model, optimizer, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
