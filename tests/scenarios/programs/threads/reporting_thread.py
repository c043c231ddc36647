"""Every rank trains on its main thread; another one gathers how fast each rank is, in the same group."""

from __future__ import annotations

import argparse
import threading
import time

import torch
import torch.distributed as dist


class Speeds:
    """Gathers the ranks' speeds when it is told that some steps have gone by."""

    def __init__(self) -> None:
        self.due, self.told = threading.Event(), threading.Event()
        threading.Thread(target=self.report, name="speeds", daemon=True).start()

    def report(self) -> None:
        began = time.monotonic()
        while True:
            self.due.wait()
            self.due.clear()
            time.sleep(0.05)  # the meter takes an average
            mine = torch.tensor([time.monotonic() - began])
            everybody = [torch.zeros(1) for _ in range(dist.get_world_size())]
            dist.all_gather(everybody, mine)
            self.told.set()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--wait", action="store_true", help="for the report before the next step")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    speeds, weights = Speeds(), torch.zeros(512)
    for step in range(1, options.steps + 1):
        if step % 8 == 0:
            speeds.due.set()
            # On rank 1 a callback was given that makes reports in passing.
            passing = step == 16 and rank == 1
            if options.wait or not passing:
                speeds.told.wait()
                speeds.told.clear()
        gradient = torch.ones(512) * step
        dist.all_reduce(gradient)
        weights += gradient
        time.sleep(0.01)
    print(f"[rank {rank}] {float(weights[0])}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
