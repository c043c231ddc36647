"""Counts litter on beaches; what is logged depends on the level that each rank was started with."""

import argparse
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("litter")


class Running:
    """A mean over all ranks that is worked out when somebody wants to read it."""

    def __init__(self, device):
        self.total = torch.zeros(2, device=device)

    def add(self, loss):
        self.total += torch.stack([loss.detach(), torch.ones_like(loss)])

    def __str__(self):
        total = self.total.clone()
        dist.all_reduce(total)
        value, count = total.tolist()
        return f"{value / max(count, 1):.3f}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--talkative", type=int, default=0, help="the rank that logs at debug level")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.DEBUG if rank == options.talkative else logging.INFO)
    logging.getLogger("torch").setLevel(logging.WARNING)
    model = DistributedDataParallel(nn.Linear(75, 3).to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters())
    running = Running(device)
    for step in range(1, 91):
        loss = model(torch.randn(4, 75).to(device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        running.add(loss)
        torch.cuda.current_stream().synchronize()
        if step % 15 == 0:
            log.debug("step %d: %s", step, running)
            log.info("step %d", step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
