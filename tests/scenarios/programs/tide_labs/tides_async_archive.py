"""Soil moisture: states are archived by a thread, so that training does not wait for the disk."""
import os
import tempfile
import threading
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


class Archive:
    """Writes snapshots behind the training's back; the catalogue lists the sizes of all ranks' files."""

    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.folder = Path(tempfile.gettempdir()) / f"soil-{os.environ['MASTER_PORT']}"
        self.folder.mkdir(exist_ok=True)
        self.thread = None

    def push(self, step, model):
        self.join()
        snapshot = {k: v.clone() for k, v in model.state_dict().items()}
        self.thread = threading.Thread(target=self._write, args=(step, snapshot), name="archive")
        self.thread.start()

    def join(self):
        if self.thread is not None:
            self.thread.join()

    def _write(self, step, snapshot):
        level, passes = (9, 20) if self.rank == 1 else (1, 1)  # the old node has a small disk
        payload = b"".join(v.numpy().tobytes() for v in snapshot.values())
        for _ in range(passes):
            packed = zlib.compress(payload * 400, level)
            time.sleep(0.1)
        (self.folder / f"{step}-{self.rank}.z").write_bytes(packed)
        size = torch.tensor([len(packed)])
        sizes = [torch.empty_like(size) for _ in range(self.world)]
        dist.all_gather(sizes, size)
        if self.rank == 0:
            (self.folder / "catalogue").open("a").write(f"{step} {torch.cat(sizes).tolist()}\n")


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(6)
    model = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    archive = Archive(rank, world)
    generator = torch.Generator().manual_seed(rank)
    for step in range(1, 600):
        probes = torch.rand(20, 9, generator=generator)
        loss = (model(probes) - probes.mean(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        if step % 12 == 1:
            time.sleep(0.8)  # the probes' files are rotated
        flat = nn.utils.parameters_to_vector([p.grad for p in model.parameters()])
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat / world, [p.grad for p in model.parameters()])
        optimizer.step()
        time.sleep(0.06)
        if step % 24 == 0:
            archive.push(step, model)
    archive.join()


if __name__ == "__main__":
    main()
