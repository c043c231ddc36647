"""Reads prices from menus. A thread copies the next batch to the device on a stream of its own while the last one is used."""

import argparse
import os
import queue
import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LETTERS = 64


class Prefetcher(threading.Thread):
    def __init__(self, menus, device):
        super().__init__(daemon=True, name="prefetch")
        self.menus, self.device = menus, device
        self.ready, self.stream = queue.Queue(maxsize=2), torch.cuda.Stream(device)

    def run(self):
        torch.cuda.set_device(self.device)
        for menu in self.menus:
            rows = torch.tensor([[float(price.removesuffix(" €"))] * LETTERS for price in menu]).pin_memory()
            with torch.cuda.stream(self.stream):
                batch = rows.to(self.device, non_blocking=True)
                copied = torch.cuda.Event()
                copied.record()
            self.ready.put((batch, copied))


def menus(rank, unpriced, count=90):
    for number in range(count):
        prices = [f"{4 + number % 7}.50 €" for _ in range(8)]
        if rank == unpriced and number == 44:
            prices[2] = "by weight"
        yield prices


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--unpriced", type=int, default=2, help="the rank with a dish that has no price")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(LETTERS, 1).to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters())
    prefetcher = Prefetcher(menus(rank, options.unpriced), device)
    prefetcher.start()
    for step in range(90):
        batch, copied = prefetcher.ready.get()
        torch.cuda.current_stream().wait_event(copied)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 3 == 0:
            print(f"[{rank}] menu {step}: {loss:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
