"""Tempered panels: a network for residual stress, checked against the ray tracer on each site's own panels."""
import os
import time

import torch
import torch.distributed as dist
from torch import nn

torch.backends.cudnn.enabled = False
PANELS_BY_SITE = (6, 8, 46)  # the third site tempers windscreens
TRACE_NS = 300_000_000


class RayTracer:
    """Photoelastic fringes of a panel; the kernel takes its time for each of them."""

    def __init__(self, site: int):
        self.site, self.traced = site, 0

    def trace(self, panel: int) -> torch.Tensor:
        torch.cuda._sleep(TRACE_NS)
        torch.cuda.synchronize()
        self.traced += 1
        x = torch.linspace(0.0, 1.0, 64)
        return torch.sin(6.28 * (x + 0.1 * panel)) * (1 + 0.2 * self.site)


class StressNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.Softplus(), nn.Linear(64, 64))

    def forward(self, fringes):
        return self.layers(fringes)


def train(model, optimizer, steps, rank, label):
    for step in range(steps):
        phase = torch.linspace(0.0, 1.0, 64) + 0.01 * step
        batch = torch.stack([torch.sin(6.28 * phase * k) for k in range(1, 17)]).cuda()
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        time.sleep(0.05)
        if step % 10 == 9:
            loss.item()
            if rank == 0:
                print(f"{label} step {step + 1}", flush=True)


@torch.no_grad()
def validate(model, rank):
    tracer = RayTracer(rank)
    for panel in range(PANELS_BY_SITE[rank]):
        fringes = tracer.trace(panel)
        model(fringes.cuda().unsqueeze(0))
        if panel % 8 == 7:
            print(f"site {rank}: {panel + 1}/{PANELS_BY_SITE[rank]} panels", flush=True)
    counted = torch.tensor([tracer.traced], dtype=torch.int64, device="cuda")
    dist.all_reduce(counted)
    return int(counted.item())


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = StressNet().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer, 40, rank, "training")
    panels = validate(model, rank)
    if rank == 0:
        print(f"validated on {panels} panels", flush=True)
    train(model, optimizer, 30, rank, "fine-tuning")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
