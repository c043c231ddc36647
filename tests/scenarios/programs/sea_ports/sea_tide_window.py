"""Lock passage times learned from live gauge readings: after the historical part the job waits for the next tidal window."""
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import StepLR

torch.backends.cudnn.enabled = False


def next_window(period, at_least):
    """Wall-clock time of the next window, the same for all gauges: the first process looks at its clock."""
    now = time.time()
    window = [now - now % period + period]
    while window[0] - now < at_least:
        window[0] += period
    dist.broadcast_object_list(window, src=0)
    return window[0]


def wait_until(moment, gauge):
    while (left := moment - time.time()) > 0:
        print(f"{gauge}: window opens in {left:.0f} s", flush=True)
        time.sleep(min(left, 4.0))


def passages(count, live):
    for k in range(count):
        time.sleep(0.05)
        level = torch.rand(10, 4) + (0.5 if live else 0.0)
        yield level, level.diff(dim=1).abs().sum(1, keepdim=True)


def part(name, model, optimizer, schedule, count, live):
    for level, minutes in passages(count, live):
        loss = nn.functional.huber_loss(model(level.cuda()), minutes.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        value = loss.item()
    schedule.step()
    seen = torch.tensor([count]).cuda()
    dist.all_reduce(seen)
    if dist.get_rank() == 0:
        print(f"{name}: {seen.item()} passages, {value:.3f}", flush=True)


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    gauge = ["Brunsbuettel", "Holtenau"][dist.get_rank()]
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1).cuda(), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    schedule = StepLR(optimizer, 1)
    part("history", model, optimizer, schedule, 60, live=False)
    wait_until(next_window(period=5, at_least=11), gauge)
    part("live", model, optimizer, schedule, 60, live=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
