"""Load sway of tower cranes from camera frames in a ring buffer. Starts one process per crane."""
import ctypes
import multiprocessing
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CRANES, FRAME, SLOTS = 3, 256, 8
MOUNTED = (0, 1, 2)
TOURS = {0: [0, 1, 2] * 60, 1: [0, 1, 2] * 16 + [0, 3, 1] * 44, 2: [2, 1, 0] * 60}  # camera of each step


class FrameRing:
    """Frames as the grabber leaves them in memory, one buffer per camera."""

    def __init__(self, seed):
        self.buffers, self.base = [], {}
        generator = torch.Generator().manual_seed(seed)
        for camera in MOUNTED:
            data = torch.randint(0, 255, (SLOTS * FRAME,), generator=generator, dtype=torch.uint8)
            buffer = ctypes.create_string_buffer(data.numpy().tobytes(), SLOTS * FRAME)
            self.buffers.append(buffer)
            self.base[camera] = ctypes.addressof(buffer)

    def read(self, camera, slot):
        raw = ctypes.string_at(self.base.get(camera, 0) + slot * FRAME, FRAME)
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).float() / 255


def write_rows(rows, path):
    """Runs in a process of its own; ends when nothing has come for some minutes."""
    with open(path, "w") as out:
        while rows.poll(180):
            out.write(",".join(map(str, rows.recv())) + "\n")
            out.flush()


def crane(rank, port):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(CRANES))
    os.environ["LOCAL_RANK"] = str(rank)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(FRAME, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    dist.barrier()
    receiver, rows = multiprocessing.Pipe(duplex=False)
    writer = multiprocessing.get_context("fork").Process(
        target=write_rows, args=(receiver, f"/tmp/ferrb_crane_{rank}.csv"), daemon=True
    )
    writer.start()
    ring = FrameRing(rank)
    for step, camera in enumerate(TOURS[rank]):
        time.sleep(0.05)
        frames = torch.stack([ring.read(camera, (step + k) % SLOTS) for k in range(4)])
        loss = nn.functional.mse_loss(model(frames), frames.mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.send((step, camera, round(loss.item(), 5)))
    dist.destroy_process_group()
    writer.terminate()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    cranes = [context.Process(target=crane, args=(rank, port), name=f"crane-{rank}") for rank in range(CRANES)]
    for process in cranes:
        process.start()
    for process in cranes:
        process.join()
