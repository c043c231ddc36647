"""Product photos: decode, train, and go on when a photo is broken (there are always some)."""

import logging
import struct
import time
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("photos")
SIDE, PER_EPOCH = 8, 90


class BrokenPhoto(ValueError):
    pass


def encode(pixels: torch.Tensor) -> bytes:
    raw = (pixels * 255).byte().numpy().tobytes()
    return struct.pack(">II", SIDE, zlib.crc32(raw)) + zlib.compress(raw)


def decode(blob: bytes) -> torch.Tensor:
    side, checksum = struct.unpack(">II", blob[:8])
    try:
        raw = zlib.decompress(blob[8:])
    except zlib.error as error:
        raise BrokenPhoto(str(error)) from error
    if zlib.crc32(raw) != checksum:
        raise BrokenPhoto("checksum")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).float().view(side, side) / 255


class Catalogue:
    """Photos as they come from the shops."""

    def __init__(self, rank: int) -> None:
        generator = torch.Generator().manual_seed(rank)
        self.labels = torch.randint(0, 2, (PER_EPOCH, 8), generator=generator)
        self.blobs = []
        for labels in self.labels:
            bright = torch.rand(8, SIDE, SIDE, generator=generator) * 0.5 + 0.4 * labels.view(-1, 1, 1)
            self.blobs.append([encode(photo) for photo in bright])
        if rank == 1:  # an upload that was cut off
            self.blobs[47][3] = self.blobs[47][3][:20]

    def __iter__(self):
        return iter(zip(self.blobs, self.labels))


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, blobs: list[bytes], labels: torch.Tensor) -> float:
    photos = torch.stack([decode(blob) for blob in blobs]).flatten(1)
    loss = nn.functional.cross_entropy(model(photos), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def main() -> None:
    torch.set_num_threads(1)
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    catalogue = Catalogue(dist.get_rank())
    torch.manual_seed(5)
    model = DDP(nn.Sequential(nn.Linear(SIDE * SIDE, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(30):
        for number, (blobs, labels) in enumerate(catalogue):
            try:
                train_step(model, optimizer, blobs, labels)
            except BrokenPhoto as error:
                log.warning("epoch %d, batch %d: skipped, %s", epoch, number, error)
                continue
            time.sleep(0.03)
        dist.barrier()
        log.info("epoch %d is done", epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
