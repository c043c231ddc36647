"""Matches witness statements with recordings. Recordings are mapped on demand, at most sixteen at a time."""

import collections
import logging
import mmap
import pathlib
import tempfile
import threading
import time
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("witness")


class Recording:
    def __init__(self, path):
        self.file = open(path, "rb")
        self.data = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ)

    def frames(self, start, count):
        return torch.tensor(list(self.data[start : start + count]), dtype=torch.float32) / 255


class RecordingPool:
    """Open recordings by name. The pool is also asked by the statistics thread, so it has a lock."""

    def __init__(self, folder, capacity):
        self.folder, self.capacity = folder, capacity
        self.lock = threading.Lock()
        self.open = collections.OrderedDict()
        self.mapped = 0

    def released(self, name, size):
        with self.lock:
            self.mapped -= size
            log.debug("%s unmapped", name)

    def get(self, name):
        with self.lock:
            if name in self.open:
                self.open.move_to_end(name)
                return self.open[name]
            while len(self.open) >= self.capacity:
                self.open.popitem(last=False)
            recording = Recording(self.folder / name)
            size = len(recording.data)
            weakref.finalize(recording, self.released, name, size)
            self.mapped += size
            self.open[name] = recording
            return recording

    def statistics(self):
        with self.lock:
            return len(self.open), self.mapped


def report(pool, rank, every=1.0):
    while True:
        time.sleep(every)
        count, size = pool.statistics()
        log.info("rank %d: %d recordings, %.1f MB mapped", rank, count, size / 1e6)


class Roll:
    """Hearing days and the recordings made on them, per courtroom."""

    ROOMS = {"A": 9, "B": 14, "C": 17, "D": 12}

    def __init__(self, folder, room):
        self.room, self.count = room, self.ROOMS[room]
        for number in range(self.count):
            (folder / f"{room}{number:02d}.pcm").write_bytes(bytes((number * i) % 251 for i in range(40000)))

    def visit(self, step):
        return f"{self.room}{(step // 4) % self.count:02d}.pcm"


def main():
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="recordings-"))
    roll = Roll(folder, "ABCD"[rank])
    pool = RecordingPool(folder, capacity=16)
    threading.Thread(target=report, args=(pool, rank), daemon=True).start()
    torch.manual_seed(6)
    model = DistributedDataParallel(nn.Conv1d(1, 4, kernel_size=9, stride=4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(400):
        frames = pool.get(roll.visit(step)).frames(64 * (step % 100), 256)
        loss = model(frames.view(1, 1, -1)).var()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
