"""Scans film reels of the archive in strips and estimates dust; starts its own scan workers."""
import os
import shutil
import signal
import socket
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 3
REELS = 14
SCRATCH_LIMIT = 8 << 20  # bytes of scratch disk a scan worker may have
FORMATS = {(1, 7): "70mm"}  # (worker, reel); all the rest is 16mm
STRIPS = {"16mm": (16 << 10, 20), "70mm": (1 << 20, 80)}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def scan(folder, reel, kind):
    size, count = STRIPS[kind]
    brightness = 0.0
    for strip in range(count):
        data = os.urandom(size)
        with open(folder / f"reel{reel:02d}.raw", "ab") as out:
            out.write(data)
        time.sleep(0.02)
        brightness += data[0] / 255 / count
    return brightness


def worker(rank, port, scratch):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, WORLD, rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=WORLD)
    marks = dist.PrefixStore("reels", store)
    folder = Path(scratch) / f"worker{rank}"
    folder.mkdir()
    for reel in range(REELS):
        brightness = scan(folder, reel, FORMATS.get((rank, reel), "16mm"))
        marks.set(f"{reel}/{rank}", "scanned")
        marks.wait([f"{reel}/{r}" for r in range(WORLD)], timedelta(hours=2))
        dust = torch.tensor([brightness])
        dist.all_reduce(dust)
        if rank == 0:
            print(f"reel {reel}: mean brightness {dust.item() / WORLD:.3f}", flush=True)
    dist.destroy_process_group()


def scratch_used(folder):
    return sum(f.stat().st_size for f in folder.glob("*.raw")) if folder.exists() else 0


def main():
    scratch = tempfile.mkdtemp(prefix="reels-")
    context, port = mp.get_context("spawn"), free_port()
    workers = [context.Process(target=worker, args=(r, port, scratch)) for r in range(WORLD)]
    for w in workers:
        w.start()
    while any(w.is_alive() for w in workers):
        for rank, w in enumerate(workers):
            if w.is_alive() and scratch_used(Path(scratch) / f"worker{rank}") > SCRATCH_LIMIT:
                os.kill(w.pid, signal.SIGKILL)
        time.sleep(0.2)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
