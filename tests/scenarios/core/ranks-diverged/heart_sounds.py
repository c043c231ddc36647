"""A student learns heart sounds from a teacher, whose weights are sent to all ranks on a stream of their own."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

SAMPLES = 128


class Teacher:
    """New weights come with a release; each rank looks for releases in its own copy of the registry."""

    def __init__(self, model, group, registry):
        self.model, self.group, self.registry, self.release = model, group, registry, 0
        self.stream, self.there = torch.cuda.Stream(), torch.cuda.Event()

    def refresh(self, step):
        release = self.registry[step // 8]
        if release == self.release:
            return
        with torch.cuda.stream(self.stream):
            for parameter in self.model.parameters():
                dist.broadcast(parameter.data, src=0, group=self.group)
            self.there.record()
        torch.cuda.current_stream().wait_event(self.there)
        self.release = release


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stale", type=int, default=-1, help="the rank whose copy of the registry is old")
    parser.add_argument("--read", choices=["item", "condition", "events"], default="item")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    student, shown = (nn.Linear(SAMPLES, 16).to(device) for _ in range(2))
    registry = [1, 1, 2, 2, 3, 3, 4, 4] if rank != options.stale else [1, 1, 2, 2, 2, 3, 4, 4]
    teacher = Teacher(shown, dist.new_group(), registry)
    started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for step in range(64):
        teacher.refresh(step)
        sounds = torch.randn(8, SAMPLES, device=device)
        started.record()
        loss = nn.functional.mse_loss(student(sounds), shown(sounds).detach())
        loss.backward()
        for parameter in student.parameters():
            dist.all_reduce(parameter.grad)
        student.zero_grad()
        ended.record()
        if options.read == "item":
            print(f"[{rank}] step {step}: {loss.item():.3f}", flush=True)
        elif options.read == "condition" and loss > 1e30:
            print(f"[{rank}] step {step} is off the scale", flush=True)
        elif options.read == "events":
            ended.synchronize()
            print(f"[{rank}] step {step}: {started.elapsed_time(ended):.2f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
