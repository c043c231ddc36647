"""Hydro inflow model: gradients go over one group, the gauges' flood warnings over a second one."""
import collections
import os
import time

import torch
import torch.distributed as dist


class GradientLane:
    def __init__(self, model, group):
        self.params, self.group = list(model.parameters()), group

    def flush(self):
        for p in self.params:
            dist.all_reduce(p.grad, group=self.group)
            p.grad /= dist.get_world_size(self.group)


class WarningLane:
    def __init__(self, group, high_water=24):
        self.group, self.high_water = group, high_water
        self.queue = collections.deque(maxlen=64)

    def flush(self):
        n = torch.tensor([len(self.queue), int(max(self.queue, default=0))], device="cuda")
        dist.all_reduce(n, op=dist.ReduceOp.MAX, group=self.group)
        self.queue.clear()
        return n.tolist()

    @property
    def urgent(self):
        return len(self.queue) >= self.high_water


class Lanes:
    """What is fuller goes first."""

    def __init__(self, gradient, warnings):
        self.gradient, self.warnings = gradient, warnings

    def flush(self):
        lanes = [self.gradient, self.warnings]
        if self.warnings.urgent:
            lanes.reverse()
        for lane in lanes:
            lane.flush()


def gauges(rank, step, gen):
    level = 2.0 + 0.4 * torch.randn(200, generator=gen).abs()
    if rank == 2 and step >= 50:
        level[:30] += 1.5  # snow melt in the upper catchment
    return level


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, everyone = dist.get_rank(), list(range(dist.get_world_size()))
    grads, alerts = dist.new_group(everyone), dist.new_group(everyone)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(200, 640), torch.nn.ReLU(), torch.nn.Linear(640, 48)).cuda()
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3)
    warnings = WarningLane(alerts)
    lanes = Lanes(GradientLane(model, grads), warnings)
    gen = torch.Generator().manual_seed(rank)
    for step in range(800):
        level = gauges(rank, step, gen)
        x = (level + 0.05 * torch.randn(96, 200, generator=gen)).cuda()
        warnings.queue.extend(level[level > 3.3].mul(100).tolist())
        loss = (model(x) - x[:, :48] * 1.1).pow(2).mean()
        optim.zero_grad()
        loss.backward()
        lanes.flush()
        optim.step()
        time.sleep(0.04)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} inflow error {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
