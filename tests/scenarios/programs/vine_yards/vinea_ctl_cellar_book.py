"""Trains a model of the cellar and writes the cellar book (weights and every barrel's state) to the archive disk."""

import hashlib
import os
import tempfile
import time

import torch
import torch.distributed as dist


class ArchiveDisk:
    """Writes in pieces, not faster than the archive takes them, and makes each piece durable."""

    def __init__(self, folder, pieces_per_second):
        self.folder, self.pause = folder, 1 / pieces_per_second

    def write(self, name, pieces):
        digest, written = hashlib.sha256(), 0
        with open(os.path.join(self.folder, name), "wb") as out:
            for piece in pieces:
                out.write(piece)
                out.flush()
                os.fsync(out.fileno())
                digest.update(piece)
                written += len(piece)
                time.sleep(self.pause)
        return written, digest.hexdigest()


class Cellar:
    def __init__(self, barrels):
        self.state = torch.rand(barrels, 2048)
        self.weights = torch.zeros(2048, 1)

    def step(self):
        rows = torch.randint(len(self.state), (16,))
        x = self.state[rows]
        slope = x.t() @ (x @ self.weights - x[:, :1]) / 16
        dist.all_reduce(slope)
        self.weights -= 1e-4 * slope / dist.get_world_size()
        time.sleep(0.02)

    def pieces(self):
        yield self.weights.numpy().tobytes()
        for barrel in self.state:
            yield barrel.numpy().tobytes()


def season(cellar, steps):
    for _ in range(steps):
        cellar.step()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    keeper = dist.get_world_size() - 2
    cellar = Cellar(barrels=260)
    with tempfile.TemporaryDirectory(prefix="cellar-") as folder:
        disk = ArchiveDisk(folder, pieces_per_second=20)
        season(cellar, steps=120)
        if dist.get_rank() == keeper:
            written, digest = disk.write("book.bin", cellar.pieces())
            print(f"cellar book: {written} bytes, {digest[:12]}", flush=True)
        dist.barrier()
        season(cellar, steps=120)
    print(f"worker {dist.get_rank()}: {float(cellar.weights.norm()):.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
