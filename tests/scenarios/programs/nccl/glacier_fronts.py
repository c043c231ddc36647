"""Follows glacier fronts; the host looks every few milliseconds whether a reduction is through, and shows a spinner."""

import argparse
import itertools
import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

SPINNER = itertools.cycle("|/-\\")


def reduced(gradient):
    work = dist.all_reduce(gradient, async_op=True)
    while not work.is_completed():
        time.sleep(0.005)
        next(SPINNER)
    return work


def copied(value, host):
    host.copy_(value, non_blocking=True)
    done = torch.cuda.Event()
    done.record()
    while not done.query():
        time.sleep(0.005)
        next(SPINNER)


class Scenes:
    """Scenes are unpacked into a folder by a program beside this one, which hands the late ones over through a pipe."""

    def __init__(self, late):
        self.folder, self.late = tempfile.mkdtemp(prefix="scenes-"), late
        os.mkfifo(os.path.join(self.folder, "late"))

    def read(self, step):
        if self.late and step == 18:
            with open(os.path.join(self.folder, "late"), "rb") as scene:
                return torch.frombuffer(bytearray(scene.read()), dtype=torch.float32)
        return torch.randn(16, 50)


def prepare(seconds):
    """Corrects the clouds of a difficult scene, on the host."""
    end, scene = time.monotonic() + seconds, torch.rand(200, 200)
    while time.monotonic() < end:
        scene = (scene @ scene).sigmoid()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--poll", choices=["work", "event"], default="work")
    parser.add_argument("--late", type=int, default=-1, help="the rank with a late scene")
    parser.add_argument("--clouds", type=float, default=0.0, help="seconds that rank 1 takes for a cloudy scene")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    scenes = Scenes(rank == options.late)
    front = nn.Linear(50, 1).to(device)
    host = torch.empty((), pin_memory=True)
    for step in range(30):
        scene = scenes.read(step).to(device)
        if rank == 1 and step == 12 and options.clouds:
            prepare(options.clouds)
        loss = front(scene).square().mean()
        loss.backward()
        for parameter in front.parameters():
            if options.poll == "work":
                reduced(parameter.grad)
            else:
                dist.all_reduce(parameter.grad)
        copied(loss.detach(), host)
        front.zero_grad()
        print(f"[{rank}] {next(SPINNER)} step {step}: {host:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
