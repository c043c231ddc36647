"""Robot locomotion with rendered clips: after some epochs the first rank renders a clip in a child process."""

import json
import lzma
import multiprocessing
import os
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


class Telemetry:
    """Counts and values of the run. They are packed and written in the background, as the disk is far away."""

    def __init__(self, path):
        self.path = path
        self.rows = []
        self.guard = threading.Lock()
        self.wanted = threading.Event()
        threading.Thread(target=self._pack, name="telemetry", daemon=True).start()

    def add(self, name, value):
        with self.guard:
            self.rows.append({"time": time.time(), "name": name, "value": value})

    def save(self):
        self.wanted.set()

    def _pack(self):
        while True:
            self.wanted.wait()
            self.wanted.clear()
            with self.guard:
                text = "\n".join(map(json.dumps, self.rows)).encode()
                with open(self.path, "wb") as file:
                    file.write(lzma.compress(text, preset=9))


def render(telemetry, path, joints):
    """Draws a clip of the gait, frame by frame, and writes it as raw bytes."""
    with open(path, "wb") as file:
        for number, frame in enumerate(joints.tolist()):
            pixels = bytearray(32 * 32)
            for angle in frame:
                pixels[int((angle % 1) * 1023)] = 255
            file.write(pixels)
            if number % 10 == 0:
                telemetry.add("render/frame", number)


class Gait(nn.Module):
    def __init__(self, joints=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(joints, 32), nn.Tanh(), nn.Linear(32, joints))

    def forward(self, pose):
        return pose + 0.1 * self.net(pose)


def clip_of(model, frames=60):
    pose, poses = torch.zeros(6), []
    with torch.no_grad():
        for _ in range(frames):
            pose = model(pose)
            poses.append(pose)
            time.sleep(0.01)
    return torch.stack(poses)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = tempfile.mkdtemp()
    telemetry = Telemetry(os.path.join(folder, "telemetry.xz")) if rank == 0 else None
    torch.manual_seed(0)
    model = Gait()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    noise = torch.Generator().manual_seed(rank)
    forked = multiprocessing.get_context("fork")
    for epoch in range(9):
        for _ in range(12):
            pose = torch.randn(64, 6, generator=noise)
            loss = (model(pose) - pose.roll(1, -1)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world
            optimizer.step()
            if telemetry is not None:
                for value in pose.flatten().tolist() * 6:
                    telemetry.add("pose", value)
            time.sleep(0.04)
        if rank == 0:
            print(f"epoch {epoch}: {loss.item():.3f}", flush=True)
            if epoch % 3 == 2:
                telemetry.save()
                child = forked.Process(target=render, args=(telemetry, os.path.join(folder, f"{epoch}.raw"), clip_of(model)))
                child.start()
                child.join()
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
