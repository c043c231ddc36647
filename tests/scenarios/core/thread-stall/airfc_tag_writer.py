"""Bag-tag recognition; what the camera of a belt has read is written out by a thread, shift by shift."""
import queue
import tempfile
import threading
import time
from collections import namedtuple
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

Reading = namedtuple("Reading", "bag code score")
HAND_TAGGED = {"south": range(820, 830)}  # bag numbers checked in at the manual desk
BELTS = ["north", "south"]


class TagWriter(threading.Thread):
    def __init__(self, path):
        super().__init__(daemon=True, name="tag-writer")
        self.path, self.queue, self.rows = path, queue.Queue(), []

    def run(self):
        while True:
            reading = self.queue.get()
            if reading.code is None:
                continue
            self.rows.append(f"{reading.bag};{reading.code};{reading.score:.3f}")
            self.queue.task_done()

    def add(self, reading):
        self.queue.put(reading)

    def close_shift(self):
        self.queue.join()
        with self.path.open("a") as file:
            file.write("\n".join(self.rows) + "\n")
        self.rows.clear()


class Belt:
    def __init__(self, name, bags_per_step=16):
        self.name, self.n, self.bag = name, bags_per_step, 0
        self.rng = torch.Generator().manual_seed(len(name) + ord(name[0]))

    def next(self):
        time.sleep(0.04)
        glyphs = torch.randn(self.n, 36, generator=self.rng)
        codes = glyphs[:, :10].argmax(1)
        first, self.bag = self.bag, self.bag + self.n
        return range(first, self.bag), glyphs, codes


class Recogniser:
    def __init__(self, belt, writer, shift=20):
        torch.manual_seed(2)
        self.net = DDP(nn.Sequential(nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 10)))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.belt, self.writer, self.shift = belt, writer, shift

    def step(self):
        bags, glyphs, codes = self.belt.next()
        logits = self.net(glyphs)
        loss = nn.functional.cross_entropy(logits, codes)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        manual = HAND_TAGGED.get(self.belt.name, ())
        for bag, row in zip(bags, logits.detach().softmax(1)):
            self.writer.add(Reading(bag, None if bag in manual else int(row.argmax()), float(row.max())))
        return loss.item()

    def run(self, steps):
        for number in range(1, steps + 1):
            loss = self.step()
            if number % self.shift == 0:
                self.writer.close_shift()
                print(f"{self.belt.name}: shift ends at step {number}, loss {loss:.3f}", flush=True)


def main():
    dist.init_process_group("gloo")
    belt = Belt(BELTS[dist.get_rank()])
    writer = TagWriter(Path(tempfile.mkdtemp()) / f"{belt.name}.csv")
    writer.start()
    Recogniser(belt, writer).run(160)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
