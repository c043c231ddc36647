"""Trains a small strain model and leaves one merged weights file on the archive share of the works."""

import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

CHUNK = 256 * 1024
SHARE_BYTES_PER_S = 1_400_000


class Share:
    """A folder on the archive share; it takes SHARE_BYTES_PER_S from one client."""

    def __init__(self, path):
        self.file = open(path, "wb")
        self.digest = hashlib.sha256()

    def append(self, data):
        self.file.write(data)
        self.file.flush()
        os.fsync(self.file.fileno())
        self.digest.update(data)
        time.sleep(len(data) / SHARE_BYTES_PER_S)

    def close(self):
        self.file.close()
        return self.digest.hexdigest()


def merge(folder, world):
    share, total = Share(folder / "merged.bin"), 0
    for rank in range(world):
        with open(folder / f"part{rank}.bin", "rb") as part:
            while data := part.read(CHUNK):
                share.append(data)
                total += len(data)
                if total % (8 * CHUNK) == 0:
                    print(f"merged {total / 2**20:.0f} MiB", flush=True)
    print(f"merged.bin: {total} bytes, sha256 {share.close()[:12]}", flush=True)


def steps(model, optimizer, rng, count):
    for _ in range(count):
        strain = rng.normal(0.0, 1.0, (128, 4096))
        x = np.abs(np.fft.rfft(strain, axis=1))[:, :64].astype(np.float32)
        loss = model(torch.from_numpy(x).cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()


def main():
    torch.backends.cudnn.enabled = False
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    world = dist.get_world_size()
    place = [tempfile.mkdtemp(prefix="strain-") if local == 0 else None]
    dist.broadcast_object_list(place, src=0)
    folder = Path(place[0])

    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 1)).cuda(), [local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(local)
    steps(model, optimizer, rng, 60)

    (folder / f"part{local}.bin").write_bytes(rng.bytes(6 * 2**20))
    dist.barrier(device_ids=[local])
    if local == 0:
        merge(folder, world)
    dist.barrier(device_ids=[local])

    steps(model, optimizer, rng, 40)
    dist.barrier(device_ids=[local])
    dist.destroy_process_group()
    if local == 0:
        shutil.rmtree(folder)
        print("finished", flush=True)


if __name__ == "__main__":
    main()
