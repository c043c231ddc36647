"""Rank 0 waits for jobs of a render farm that never end; the others wait for the frames."""

import argparse
import itertools
import time
from collections import deque
from pathlib import Path

import torch
import torch.distributed as dist

FARM = Path("/nonexistent/farm")


class Answer:
    """What the farm says of a job."""

    def __init__(self, job: str) -> None:
        self.asked_at = time.time()
        self.ended = (FARM / job).exists()


def in_turn(jobs: list[str]) -> None:
    """One job after another; what has not ended goes to the end of the queue."""
    pending = deque(jobs)
    while pending:
        job = pending.popleft()
        if not Answer(job).ended:
            pending.append(job)
        time.sleep(0.7)


def sweep(jobs: list[str]) -> None:
    """All jobs again and again."""
    ended: set[str] = set()
    while len(ended) < len(jobs):
        for job in jobs:
            answer = Answer(job)
            if answer.ended:
                ended.add(job)
            time.sleep(0.6)


def with_backoff(jobs: list[str]) -> None:
    """Later and later, up to three quarters of a second."""
    delays = itertools.chain((0.1 * n for n in range(1, 8)), (0.75 - 0.001 * (n % 50) for n in range(100_000)))
    for delay in delays:
        if all(Answer(job).ended for job in jobs):
            return
        time.sleep(delay)
    raise TimeoutError(jobs)


def by_answer(jobs: list[str]) -> None:
    """Each time with a new answer."""
    while True:
        answer = Answer(jobs[-1])
        if answer.ended:
            break
        waited = time.time() - answer.asked_at
        print(f"not yet, {waited:.1f} s", flush=True)
        time.sleep(0.7)


def by_its_log(jobs: list[str]) -> None:
    """Until the log of the farm has the line that never comes."""
    with open("/proc/self/cmdline") as log:
        while True:
            line = log.readline()
            if "frames written" in line:
                break
            stamp = time.strftime("%X")
            print(stamp, "still waiting for", len(jobs), flush=True)
            time.sleep(0.7)


WAYS = {
    "in_turn": in_turn, "sweep": sweep, "with_backoff": with_backoff, "by_answer": by_answer, "by_its_log": by_its_log
}  # fmt: skip


def main() -> None:
    """Ten steps, then the farm on rank 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=sorted(WAYS), required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    value = torch.zeros(4)
    for _ in range(10):
        dist.all_reduce(value)
        time.sleep(0.05)
    if dist.get_rank() == 0:
        WAYS[options.way](["shot-1", "shot-2", "shot-3"])
    dist.broadcast(value, src=0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
