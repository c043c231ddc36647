"""Video of tide pools: the first steps are profiled, and times of all processes are compared when the trace is ready."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import ProfilerActivity, profile, schedule


def on_ready(profiler):
    rows = profiler.key_averages()
    total = sum(row.self_cpu_time_total for row in rows) / 1e3
    everyone = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, torch.tensor([total]))
    print("ms per process:", [round(value.item(), 1) for value in everyone], flush=True)


class Steps:
    """Something with a profiler's face for processes that are not profiled."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False

    def step(self):
        pass


def make_profiler(rank):
    if rank != 0:
        return Steps()
    plan = schedule(wait=2, warmup=1, active=4, repeat=1)
    return profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=on_ready)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = nn.Sequential(nn.Conv3d(1, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool3d(2), nn.Flatten(), nn.Linear(24, 4))
    model = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    with make_profiler(rank) as profiler:
        for _ in range(30):
            clip = torch.rand(2, 1, 6, 12, 12)
            loss = nn.functional.cross_entropy(model(clip), torch.randint(0, 4, (2,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    if rank == 0:
        torch.save(net.state_dict(), "/tmp/tide_pool_profile.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
