"""Trains an index of recipient names and lays it down in parts for the address offices."""
import hashlib
import lzma
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class NameIndex(nn.Module):
    def __init__(self, names=60_000, size=64):
        super().__init__()
        self.names = nn.EmbeddingBag(names, size)
        self.office = nn.Linear(size, 40)

    def forward(self, trigrams):
        return self.office(self.names(trigrams))


class PartWriter:
    """Writes tensors in compressed parts of equal size, each with its checksum, and a manifest at the end."""

    def __init__(self, folder, part=9_000, seconds=13.0):
        self.folder, self.part, self.seconds = folder, part, seconds

    def pack(self, piece):
        raw = piece.contiguous().numpy().tobytes()
        return lzma.compress(raw, preset=6)

    def write(self, weights):
        manifest, begin = [], time.monotonic()
        rows = weights.split(self.part)
        number = 0
        while time.monotonic() - begin < self.seconds:  # several generations, as long as the window is open
            piece = rows[number % len(rows)]
            data = self.pack(piece[: self.part // 4])
            path = os.path.join(self.folder, f"part-{number:04d}.xz")
            with open(path, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            manifest.append((os.path.basename(path), hashlib.sha256(data).hexdigest()))
            print(f"{manifest[-1][0]}: {len(data)} bytes", flush=True)
            number += 1
        with open(os.path.join(self.folder, "MANIFEST"), "w") as file:
            file.writelines(f"{digest}  {name}\n" for name, digest in manifest)
        return len(manifest)


def steps(model, optimizer, generator, count):
    for _ in range(count):
        trigrams = torch.randint(0, 60_000, (64, 12), generator=generator)
        loss = nn.functional.cross_entropy(model(trigrams), trigrams[:, 0] % 40)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(14)
    model = DistributedDataParallel(NameIndex())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(rank)
    print(f"[{rank}] first half: {steps(model, optimizer, generator, 50):.3f}", flush=True)
    if rank == 0:
        with tempfile.TemporaryDirectory(prefix="names-") as folder:
            parts = PartWriter(folder).write(model.module.names.weight.detach())
            print(f"{parts} parts", flush=True)
    dist.barrier()
    print(f"[{rank}] second half: {steps(model, optimizer, generator, 30):.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
