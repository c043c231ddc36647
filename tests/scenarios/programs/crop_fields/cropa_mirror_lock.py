"""Flood maps: scenes are mirrored to this machine by a process of its own, whose lock keeps half-copied folders from being read."""
import fcntl
import hashlib
import os
import socket
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SCENES, PART = 3, 1 << 18


class MirrorLock:
    def __init__(self, folder):
        self.path = Path(folder, ".lock")

    def __enter__(self):
        self.file = self.path.open("a")
        fcntl.flock(self.file, fcntl.LOCK_EX)
        return self

    def __exit__(self, *exc):
        self.file.close()


def mirror(root, wanted):
    """Copies the scenes that are asked for, part by part, and checks each part."""
    while True:
        scene, parts = wanted.get()
        if scene is None:
            return
        folder = Path(root, f"scene{scene}")
        folder.mkdir()
        with MirrorLock(folder), Path(folder, "pixels.bin").open("wb") as out:
            Path(folder, "ready").touch()
            for part in range(parts):
                block = os.urandom(PART)
                for _ in range(60):
                    hashlib.sha256(block).digest()
                out.write(block)
                out.flush()
                time.sleep(0.03)
                if part % 60 == 59:
                    print(f"mirror: scene {scene}, part {part + 1} of {parts}", flush=True)


def read_scene(root, scene):
    folder = Path(root, f"scene{scene}")
    while not Path(folder, "ready").exists():
        time.sleep(0.05)
    with MirrorLock(folder):
        data = Path(folder, "pixels.bin").read_bytes()
    values = torch.frombuffer(bytearray(data), dtype=torch.uint8).float() / 255
    return values[: len(values) // 64 * 64].view(-1, 64)


def work(rank, world, root):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    for scene in range(SCENES):
        box = [read_scene(root, scene) if rank == 2 else None]
        dist.broadcast_object_list(box, src=2)
        pixels = box[0][rank::world]
        for step in range(150):
            x = pixels[torch.randint(len(pixels), (512,))]
            loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"scene {scene}: loss {loss.item():.5f}", flush=True)
    dist.destroy_process_group()


def main(world=3):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ.setdefault("MASTER_PORT", str(probe.getsockname()[1]))
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory() as root:
        wanted = context.Queue()
        for scene, parts in enumerate((8, 12, 330)):
            wanted.put((scene, parts))
        wanted.put((None, 0))
        copier = context.Process(target=mirror, args=(root, wanted), name="mirror")
        copier.start()
        mp.spawn(work, args=(world, root), nprocs=world)
        copier.join()


if __name__ == "__main__":
    main()
