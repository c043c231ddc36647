"""Summarises court rulings; rulings that could not be parsed are collected and shown after each part."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def parse(rank, number):
    text = f"ruling {number}: §{number % 90}"
    if (rank, number) == (1, 52):
        text = "ruling"
    head, _, paragraph = text.partition(": §")
    return int(head.split()[1]) + int(paragraph or 0)


def show_failures(failures):
    everywhere = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, failures)
    if dist.get_rank() == 0:
        print("could not be parsed:", [one for part in everywhere for one in part], flush=True)


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(64, 64).to(device), device_ids=[device.index])
    optimizer = torch.optim.Adafactor(model.parameters())
    for part in range(10):
        failures = []
        for number in range(10 * part, 10 * part + 10):
            try:
                paragraph = parse(rank, number)
            except (ValueError, IndexError) as error:
                failures.append((number, str(error)))
                paragraph = 0
            loss = model(torch.full((4, 64), paragraph / 100).to(device)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"[{rank}] part {part}: {loss}", flush=True)
        if failures:
            show_failures(failures)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
