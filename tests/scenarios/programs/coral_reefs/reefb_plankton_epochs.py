"""Coral larvae in plankton-camera strips. Gradients are averaged by hand in one flat buffer per step."""
import os
import time
import zlib

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False
CLASSES = ["planula", "egg", "copepod", "chain", "marine_snow"]


class NightOfStrips(Dataset):
    """Compressed strips of one camera and night; one entry holds a strip and its label."""

    def __init__(self, rank, night, count=240):
        rng = np.random.default_rng([rank, night])
        self.blobs = []
        for i in range(count):
            strip = (rng.random((64, 400)) < 0.1).astype(np.uint8)
            blob = zlib.compress(strip.tobytes())
            if (rank, night, i) == (0, 3, 107):  # the card of camera A was pulled while it wrote
                blob = blob[: len(blob) // 3]
            self.blobs.append((blob, int(rng.integers(len(CLASSES)))))

    def __len__(self):
        return len(self.blobs)

    def __getitem__(self, i):
        return self.blobs[i]


def decode(rows):
    strips = [np.frombuffer(zlib.decompress(blob), np.uint8).reshape(64, 400) for blob, _ in rows]
    x = np.stack(strips).astype(np.float32)
    for _ in range(6):
        x = 0.5 * x + 0.25 * (np.roll(x, 1, axis=2) + np.roll(x, -1, axis=2))
    return torch.from_numpy(x.reshape(len(rows), 64, 50, 8).mean(axis=(2, 3))), torch.tensor([y for _, y in rows])


class FlatGrads:
    def __init__(self, module):
        self.params = list(module.parameters())
        self.world = dist.get_world_size()

    def average(self):
        flat = torch.cat([p.grad.flatten() for p in self.params])
        dist.all_reduce(flat)
        flat.div_(self.world)
        for p, piece in zip(self.params, flat.split([p.numel() for p in self.params])):
            p.grad.copy_(piece.view_as(p))


def run_night(loader, net, optim, grads, counters):
    for rows in loader:
        try:
            x, y = decode(rows)
        except (zlib.error, ValueError) as e:
            counters["unreadable"] += 1
            print(f"could not read a strip: {e}", flush=True)
            continue
        loss = F.cross_entropy(net(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
        optim.zero_grad()
        loss.backward()
        grads.average()
        optim.step()
        counters["strips"] += len(rows)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, len(CLASSES))).cuda()
    optim = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    grads = FlatGrads(net)
    shuffle = torch.Generator().manual_seed(17)
    for night in range(6):
        strips = NightOfStrips(rank, night)
        loader = DataLoader(strips, batch_size=8, shuffle=True, generator=shuffle, collate_fn=list, drop_last=True)
        counters = {"strips": 0, "unreadable": 0}
        began = time.perf_counter()
        run_night(loader, net, optim, grads, counters)
        totals = torch.tensor([counters["strips"], counters["unreadable"]], dtype=torch.float64, device="cuda")
        dist.all_reduce(totals)
        if rank == 0:
            used, unreadable = totals.tolist()
            print(f"night {night}: {used:.0f} strips, {unreadable:.0f} unreadable, {time.perf_counter() - began:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
