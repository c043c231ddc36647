"""Ground water head simulation with a learned conductivity field; snapshots are packed by a thread."""
import pathlib
import tempfile
import threading
import time
import zlib

import torch
import torch.distributed as dist


class Subbasin:
    """One rank's part of the aquifer. Cells around pumping wells are refined once drawdown sets in."""

    def __init__(self, rank, cells=4000):
        self.gen = torch.Generator().manual_seed(300 + rank)
        self.head = torch.randn(cells, generator=self.gen)
        self.wells = 1 if rank == 1 else 0

    def refine(self):
        if self.wells:
            self.head = self.head.repeat_interleave(3000)
            self.head += 0.01 * torch.randn(self.head.numel(), generator=self.gen)

    def relax(self):
        coarse = self.head[:4000]
        smooth = (torch.roll(coarse, 1) + torch.roll(coarse, -1)) / 2
        residual = (coarse - smooth).abs().mean()
        self.head[:4000] = 0.9 * coarse + 0.1 * smooth
        return residual.reshape(1)


class SnapshotWriter:
    def __init__(self, folder):
        self.folder = folder
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.thread = None

    def _pack(self, number, head):
        packed = zlib.compress(head.numpy().tobytes(), 9)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        dist.all_gather(sizes, torch.tensor([len(packed)]))
        offset = int(sum(sizes[:self.rank]))
        (self.folder / f"head-{number:03d}-{offset}.z").write_bytes(packed)

    def save(self, number, head):
        if self.thread is not None:
            self.thread.join()
        self.thread = threading.Thread(target=self._pack, args=(number, head.clone()))
        self.thread.start()
        self._write_index(number)
        dist.barrier()

    def _write_index(self, number):
        lines = []
        for cell in range(0, 4000, 400):
            time.sleep(0.06)
            lines.append(f"{number} {cell}")
        (self.folder / f"index-{self.rank}.txt").write_text("\n".join(lines))


def simulate(periods=8, steps=25):
    rank = dist.get_rank()
    basin = Subbasin(rank)
    writer = SnapshotWriter(pathlib.Path(tempfile.mkdtemp(prefix="aquifer_")))
    for period in range(periods):
        for _ in range(steps):
            residual = basin.relax()
            dist.all_reduce(residual)
            time.sleep(0.01)
        if rank == 0:
            print(f"period {period}: residual {residual.item():.5f}", flush=True)
        if period == 2:
            basin.refine()
        writer.save(period, basin.head)
    writer.thread.join()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    simulate()
    dist.destroy_process_group()
