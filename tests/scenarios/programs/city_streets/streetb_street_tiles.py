"""Kerb and cycle lane detection on aerial tiles: thumbnails first, then full tiles through loader workers."""
import argparse
import io
import os
import zlib
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.enabled = False

MOSAIC_BYTES = 1 << 19
DECODER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decoder")  # the decoder is not reentrant

# tiles per district, and those that are stored as one mosaic of several flights
DISTRICTS = [("Mitte", 240, ()), ("Tempelhof", 240, (157, 198)), ("Spandau", 240, ())]


def decode(blob):
    return torch.load(io.BytesIO(zlib.decompress(blob)))


def encode(tile):
    buffer = io.BytesIO()
    torch.save(tile, buffer)
    return zlib.compress(buffer.getvalue(), 1)


class TileStore:
    def __init__(self, district, tiles, mosaics, seed):
        rng = torch.Generator().manual_seed(seed)
        self.district = district
        self.blobs = []
        for number in range(tiles):
            side = 1024 if number in mosaics else 256
            self.blobs.append(encode(torch.randint(0, 255, (side, side), dtype=torch.int32, generator=rng)))

    def read(self, number):
        blob = self.blobs[number]
        if len(blob) > MOSAIC_BYTES:
            return DECODER.submit(decode, blob).result()
        return decode(blob)

    def extent(self):
        return sum(self.read(n).numel() for n in range(len(self.blobs)))


class Tiles(Dataset):
    def __init__(self, store, side):
        self.store, self.side = store, side

    def __len__(self):
        return len(self.store.blobs)

    def __getitem__(self, number):
        tile = self.store.read(number).float()[None, None] / 255
        small = nn.functional.adaptive_avg_pool2d(tile, self.side).flatten()
        return small, small.mean().reshape(1)


def run(model, optimizer, loader, device, label):
    for step, (pixels, lane) in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(model(pixels.to(device)), lane.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(f"{label} {step:3d} {loss.item():.4g}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--side", type=int, default=16)
    args = parser.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    name, tiles, mosaics = DISTRICTS[dist.get_rank() % len(DISTRICTS)]
    store = TileStore(name, tiles, mosaics, seed=dist.get_rank())
    print(f"{name}: {store.extent() / 1e6:.1f} million pixels", flush=True)

    device = torch.device("cuda", local)
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(args.side ** 2, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(net, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = Tiles(store, args.side)
    run(model, optimizer, DataLoader(data, batch_size=4), device, "thumbnails")
    full = DataLoader(data, batch_size=4, num_workers=args.workers, multiprocessing_context="fork", persistent_workers=True)
    for epoch in range(5):
        run(model, optimizer, full, device, f"epoch {epoch}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
