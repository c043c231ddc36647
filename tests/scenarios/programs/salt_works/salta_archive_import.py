"""Evaporation forecast for open ponds. The weather archive is unpacked by the one rank whose disk it lies on."""
import os
import subprocess
import sys

import torch
import torch.distributed as dist

OWNER = 1

UNPACK = """
import math, time
for day in range(130):
    total = sum(math.sin(i * 0.001 + day) ** 2 for i in range(120000))
    time.sleep(0.08)
    print(day, round(total, 3), flush=True)
"""


def unpack_archive():
    """Rows of the archive as the unpacker gives them out, one a day."""
    with subprocess.Popen([sys.executable, "-c", UNPACK], stdout=subprocess.PIPE, text=True) as unpacker:
        for line in unpacker.stdout:
            day, total = line.split()
            if int(day) % 20 == 0:
                print(f"archive: day {day}", flush=True)
            yield float(total)
    if unpacker.returncode:
        raise RuntimeError(f"unpacker ended with {unpacker.returncode}")


def forecast_steps(weight, days, count, gen):
    for _ in range(count):
        sun = torch.rand(400, 400, generator=gen)
        for _ in range(6):
            sun = torch.tanh(sun @ sun.T / 400)
        batch = sun[:32, : weight.numel()].cuda()
        error = (batch * weight).sum(1).mean()
        (grad,) = torch.autograd.grad(error, weight)
        dist.all_reduce(grad, op=dist.ReduceOp.SUM)
        with torch.no_grad():
            weight -= 1e-3 * grad
        torch.cuda.synchronize()


def load_days(rank):
    days = torch.zeros(130, dtype=torch.float64)
    if rank == OWNER:
        days = torch.tensor(list(unpack_archive()), dtype=torch.float64)
    days = days.cuda()
    dist.broadcast(days, src=OWNER)
    return days.cpu()


def main():
    torch.set_num_threads(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    gen = torch.Generator().manual_seed(rank)
    weight = torch.zeros(48, device="cuda", requires_grad=True)
    forecast_steps(weight, None, 120, gen)  # with last year's climate
    days = load_days(rank)
    print(f"rank {rank}: {len(days)} days, mean {days.mean().item():.1f}", flush=True)
    forecast_steps(weight, days, 120, gen)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
