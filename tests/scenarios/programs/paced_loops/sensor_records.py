"""Rank 2 reads what a sensor sends, a record a second; the others wait for the statistics of the shift."""

import argparse
import os
import threading
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist


def measure(descriptor: int, records: int) -> None:
    """The other end of the line."""
    with os.fdopen(descriptor, "w", buffering=1) as line:
        for number in range(records):
            line.write(f"{time.time():.3f} {number % 7}\n")
            time.sleep(0.9)


def follow(descriptor: int) -> Iterator[tuple[str, float]]:
    """Time and value of one record after another."""
    with os.fdopen(descriptor) as line:
        while record := line.readline():
            stamp, value = record.split()
            yield stamp, float(value)


def pages_of(archive: list[str]) -> Iterator[str]:
    """The days of an archive, three to a page, and a page a second and a half."""
    for first in range(0, len(archive), 3):
        time.sleep(1.5)
        yield from archive[first : first + 3]


def main() -> None:
    """Ten steps, then the records on rank 2."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=["live", "archive"], required=True)
    parser.add_argument("--records", type=int, default=18)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    value = torch.zeros(1)
    for _ in range(10):
        dist.all_reduce(value)
        time.sleep(0.05)
    if dist.get_rank() == 2:
        if options.way == "live":
            reader, writer = os.pipe()
            threading.Thread(target=measure, args=(writer, options.records), daemon=True).start()
            for _stamp, measured in follow(reader):
                value += measured
        else:
            for day in pages_of([f"1987-03-{n:02d}" for n in range(1, 3 * options.records // 2)]):
                value += len(day)
    dist.broadcast(value, src=2)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
