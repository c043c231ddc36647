"""Mould wear from laser scans; after each tour the scans are packed for the tool shop's archive."""
import hashlib
import os
import tempfile
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.backends.cudnn.enabled = False
TOURS, STEPS, SCANS = 2, 30, 46


def scan(mould: int, points: int = 4096) -> torch.Tensor:
    angle = torch.linspace(0, 6.2832, points)
    return 40.0 + 0.02 * torch.sin(3 * angle + mould) + 0.005 * torch.randn(points)


class Throttle:
    """Keeps the share of the tool shop's server free for others: so many bytes per second, no more."""

    def __init__(self, rate: float):
        self.rate, self.next = rate, time.monotonic()

    def spend(self, size: int) -> None:
        self.next = max(self.next, time.monotonic()) + size / self.rate
        time.sleep(max(0.0, self.next - time.monotonic()))


def pack(folder: Path, tour: int) -> tuple[int, str]:
    throttle, digest, written = Throttle(rate=800_000.0), hashlib.sha256(), 0
    with open(folder / f"tour{tour}.bin", "wb") as archive:
        for k in range(SCANS):
            raw = b"".join(scan(100 * k + j).numpy().tobytes() for j in range(16))
            block = zlib.compress(raw, 6)
            archive.write(len(block).to_bytes(4, "little") + block)
            archive.flush()
            os.fsync(archive.fileno())
            digest.update(block)
            written += len(block)
            throttle.spend(len(raw))
            if k % 6 == 0:
                print(f"tour {tour}: {k}/{SCANS} blocks, {written / 1e6:.1f} MB", flush=True)
    return written, digest.hexdigest()[:12]


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.set_num_threads(1)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(4096, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
    model = DDP(net, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    folder = Path(tempfile.mkdtemp(prefix="scans-")) if rank == 0 else None
    for tour in range(TOURS):
        for step in range(STEPS):
            batch = torch.stack([scan(step * 8 + k) for k in range(8)]).cuda()
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.04)
            if step % 10 == 9:
                loss.item()
        if tour == 0:
            if rank == 0:
                written, digest = pack(folder, tour)
                print(f"tour {tour}: {written} bytes, {digest}", flush=True)
            dist.barrier()
    if rank == 0:
        print("done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
