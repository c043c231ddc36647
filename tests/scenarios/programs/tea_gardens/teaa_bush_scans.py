# Blister blight on tea bushes: frames of one drone per rank, decoded in DataLoader workers.
import multiprocessing
import struct
import time
import zlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

MAGIC = b"BUSH"
SIDE = 24


class FrameStore:
    """Frames as they lie on the drone's card: magic, exposure, compressed pixels."""

    def __init__(self, drone, count=360):
        self.drone, self.count = drone, count
        # sectors that the card could not read back
        self.unread = {96, 121, 150} if drone == 1 else {340}

    def raw(self, i):
        rng = torch.Generator().manual_seed(10_000 * self.drone + i)
        pixels = torch.randint(0, 255, (SIDE * SIDE,), generator=rng, dtype=torch.uint8)
        head = b"\0\0\0\0" if i in self.unread else MAGIC
        return head + struct.pack("<f", 0.5 + (i % 7) / 10) + zlib.compress(pixels.numpy().tobytes())


class BushFrames(Dataset):
    def __init__(self, store, licences):
        self.store = store
        self.licences = licences  # the decoder may run that many times at once
        self.grey = torch.full((SIDE * SIDE,), 0.5)

    def __len__(self):
        return self.store.count

    def decode(self, raw):
        self.licences.acquire()
        if raw[:4] != MAGIC:
            return self.grey
        (exposure,) = struct.unpack("<f", raw[4:8])
        pixels = torch.frombuffer(bytearray(zlib.decompress(raw[8:])), dtype=torch.uint8)
        time.sleep(0.04)
        self.licences.release()
        return pixels.float() / 255 * exposure

    def __getitem__(self, i):
        x = self.decode(self.store.raw(i))
        return x, (x.mean() > 0.42).long()


def main():
    torch.set_num_threads(1)
    ctx = multiprocessing.get_context("fork")
    licences = ctx.Semaphore(2)
    dist.init_process_group("gloo")
    drone = dist.get_rank()
    loader = DataLoader(BushFrames(FrameStore(drone), licences), batch_size=4, num_workers=2,
                        multiprocessing_context=ctx)
    torch.manual_seed(2)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(SIDE * SIDE, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for sortie in range(3):
        wrong = 0
        for frames, blight in loader:
            scores = model(frames)
            loss = torch.nn.functional.cross_entropy(scores, blight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            wrong += int((scores.argmax(1) != blight).sum())
        print(f"drone {drone} sortie {sortie}: {wrong} wrong", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
