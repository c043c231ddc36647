"""A desk hands pages of transcripts to two readers and collects their counts: desk and readers talk point to point."""

import math
import os
import time

import torch
import torch.distributed as dist

DESK = 2
PAGE = 256
BUNDLE = 4  # pages to a bundle
SITTINGS = [32, 24, 40, 30, 36]  # pages per sitting


def page(sitting, number):
    return (torch.arange(PAGE) * (sitting * 13 + number + 3)) % 211


class Desk:
    def __init__(self, readers):
        self.readers = readers
        self.totals = dict.fromkeys(readers, 0)

    def hand_out(self, sitting, pages):
        bundles = pages // BUNDLE
        for bundle in range(bundles):
            for reader in self.readers:
                sheets = torch.stack([page(sitting, bundle * BUNDLE + i + reader) for i in range(BUNDLE)])
                dist.send(sheets, dst=reader)
            for reader in self.readers:
                count = torch.zeros(1, dtype=torch.int64)
                dist.recv(count, src=reader)
                self.totals[reader] += count.item()
        print(f"sitting {sitting}: {self.totals}", flush=True)


class Reader:
    def __init__(self, seed):
        self.marks = torch.randperm(211, generator=torch.Generator().manual_seed(seed))[:40]

    def take(self, pages):
        for _ in range(math.ceil(pages / BUNDLE)):
            sheets = torch.empty(BUNDLE, PAGE, dtype=torch.int64)
            dist.recv(sheets, src=DESK)
            time.sleep(0.1)
            dist.send(torch.isin(sheets, self.marks).sum().view(1), dst=DESK)


def main():
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    desk = Desk(readers=[r for r in range(dist.get_world_size()) if r != DESK]) if rank == DESK else None
    reader = None if desk else Reader(seed=rank)
    for sitting, pages in enumerate(SITTINGS):
        if desk:
            desk.hand_out(sitting, pages)
        else:
            reader.take(pages)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
