"""Pedestrian counts at crossings: three stages on three GPUs, frames flow from one to the next."""

import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F


@dataclass(frozen=True)
class Plan:
    batch: int = 64
    part: int = 16
    frames: int = 64 * 44 + 41
    width: int = 128

    @property
    def parts(self):
        return self.batch // self.part

    @property
    def batches(self):
        return -(-self.frames // self.batch)


class Camera:
    def __init__(self, plan):
        self.plan = plan
        self.g = torch.Generator().manual_seed(5)

    def batch(self, number):
        left = self.plan.frames - number * self.plan.batch
        frames = torch.rand(min(left, self.plan.batch), 3, 32, 32, generator=self.g)
        time.sleep(0.04)
        return F.adaptive_avg_pool2d(frames, 4).flatten(1)


class Stage:
    def __init__(self, plan, device):
        self.plan, self.device = plan, device
        self.passed = torch.zeros(1, dtype=torch.int64, device=device)
        self.transfer = 0.0

    def receive(self, source):
        begin = time.perf_counter()
        h = torch.empty(self.plan.part, self.plan.width, device=self.device)
        dist.recv(h, src=source)
        torch.cuda.current_stream().synchronize()
        self.transfer += time.perf_counter() - begin
        return h

    def inputs(self, number):
        for _ in range(self.plan.parts):
            yield self.receive(dist.get_rank() - 1)

    def run(self, number):
        for h in self.inputs(number):
            self.step(h)


class Stem(Stage):
    def __init__(self, plan, device):
        super().__init__(plan, device)
        self.camera = Camera(plan)
        self.layer = torch.nn.Linear(48, plan.width).to(device)

    def inputs(self, number):
        for part in self.camera.batch(number).split(self.plan.part):
            yield F.pad(part, (0, 0, 0, self.plan.part - len(part))).to(self.device)

    def step(self, x):
        dist.send(self.layer(x), dst=1)
        self.passed += len(x)


class Trunk(Stage):
    def __init__(self, plan, device):
        super().__init__(plan, device)
        self.layer = torch.nn.Linear(plan.width, plan.width).to(device)

    def step(self, h):
        dist.send(F.relu(self.layer(h)), dst=2)
        self.passed += len(h)


class Counter(Stage):
    def __init__(self, plan, device):
        super().__init__(plan, device)
        self.layer = torch.nn.Linear(plan.width, 1).to(device)

    def step(self, h):
        self.layer(h)
        self.passed += len(h)


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    plan = Plan()
    stage = (Stem, Trunk, Counter)[dist.get_rank()](plan, device)
    for number in range(plan.batches):
        stage.run(number)
        total = stage.passed.clone()
        dist.all_reduce(total)
        frames = total.item() // dist.get_world_size()
        if number % 10 == 0 and dist.get_rank() == 2:
            print(f"{frames} frames, {stage.transfer:.2f} s in transfer", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
