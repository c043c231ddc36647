"""A warehouse of three: rank 0 plans, and broadcasts each command to the robots, which carry it out together."""

from __future__ import annotations

import argparse
import os
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


@dataclass
class Robot:
    rank: int
    shelf: list[int]
    battery: float = 1.0
    closed: threading.Event = field(default_factory=threading.Event)

    def report(self) -> None:
        """Its state goes to a file of its own twice a second, to the end."""
        with open(os.devnull, "w") as out:
            while not self.closed.wait(0.5):
                print(self.battery, len(self.shelf), file=out, flush=True)

    def pick(self, number: int) -> None:
        taken = torch.tensor([float(len(self.shelf[:number]))])
        del self.shelf[:number]
        dist.all_reduce(taken)
        self.battery -= 0.02 * float(taken) / 3

    def balance(self) -> None:
        counts = [torch.zeros(1) for _ in range(3)]
        dist.all_gather(counts, torch.tensor([float(len(self.shelf))]))
        self.shelf.extend([0] * int(max(counts) - len(self.shelf)))


def plan(hours: int) -> list[tuple[str, int]]:
    commands = []
    for hour in range(hours):
        commands += [("pick", 2), ("pick", 3), ("drain", hour)]
        if hour % 2:
            commands.append(("balance", 0))
    return [*commands, ("close", 0)]


def work(robot: Robot, hours: int) -> None:
    commands = iter(plan(hours)) if robot.rank == 0 else None
    while True:
        given = [next(commands)] if commands else [None]
        dist.broadcast_object_list(given, src=0)
        name, argument = given[0]
        if name == "close":
            robot.closed.set()
            break
        if name == "drain":
            if not robot.shelf:
                return
            time.sleep(0.3)
        elif name == "pick":
            robot.pick(argument)
        else:
            robot.balance()
        if robot.rank == 0:
            print(f"{name} {argument}: battery {robot.battery:.2f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def start(rank: int, port: int, options: argparse.Namespace) -> None:
    limit = timedelta(minutes=10)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=3, timeout=limit)
    robot = Robot(rank, list(range(options.boxes[rank])))
    threading.Thread(target=robot.report).start()
    work(robot, options.hours)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--boxes", type=int, nargs=3, default=[90, 90, 90])
    parser.add_argument("--hours", type=int, default=10)
    chosen = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    free = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port
    mp.spawn(start, (free, chosen), nprocs=3)
