"""Descreening of halftones, from a stream that is shuffled in a large buffer."""
import os
import random
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

torch.backends.cudnn.enabled = False


class Scanner:
    """A page scanner, 20 strips a second."""

    def __init__(self, seed):
        self.dice = random.Random(seed)

    def strips(self, count):
        for _ in range(count):
            time.sleep(0.05)
            pitch = 1 + self.dice.random()
            dots = (torch.arange(128.0) * pitch).sin()
            yield (dots > 0).float(), dots


class HalftoneStream(IterableDataset):
    def __init__(self, scanner, buffer, length):
        self.scanner, self.buffer, self.length = scanner, buffer, length

    def __iter__(self):
        dice, held = random.Random(1), []
        for strip in self.scanner.strips(self.length):
            held.append(strip)
            if len(held) % 40 == 0:
                print(f"shuffle buffer: {len(held)} of {self.buffer}", flush=True)
            if len(held) >= self.buffer:
                yield held.pop(dice.randrange(len(held)))
        dice.shuffle(held)
        yield from held


STAGES = [
    {"name": "proofs", "buffer": 8, "length": 72},
    {"name": "archive", "buffer": 260, "length": 320},
]


class Descreener:
    def __init__(self, device):
        net = torch.nn.Sequential(
            torch.nn.Linear(128, 64), torch.nn.ReLU(), torch.nn.Linear(64, 128)
        )
        self.device = device
        self.net = DistributedDataParallel(net.to(device), device_ids=[device.index])
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def learn(self, dots, tone):
        loss = (self.net(dots.to(self.device)) - tone.to(self.device)).abs().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    descreener = Descreener(torch.device("cuda", local))
    for stage in STAGES:
        scanner = Scanner(seed=dist.get_rank())
        stream = HalftoneStream(scanner, stage["buffer"], stage["length"])
        batches = 0
        for dots, tone in DataLoader(stream, batch_size=4, num_workers=1):
            descreener.learn(dots, tone)
            batches += 1
        if dist.get_rank() == 0:
            print(f"{stage['name']}: {batches} batches", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
