"""Two trainers of a map model, and processes beside them: tiles come by a queue, and their losses go to an archive by one."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from datetime import timedelta
from multiprocessing import get_context, shared_memory
from pathlib import Path

import torch
import torch.distributed as dist

LIMIT = timedelta(minutes=10)
SPAWN = get_context("spawn")


def make_tiles(options: argparse.Namespace, tiles: object) -> None:
    """The producer: a tile for each step."""
    for number in range(8):
        if number == 4:
            if options.fault == "producer-raises":
                raise MemoryError("tile 4 is too large")
            if options.fault == "producer-reads":
                (options.scratch / "index").read_text()
            if options.fault == "producer-pauses":
                time.sleep(12)
        tiles.put([number] * 16)
    time.sleep(600)


def archive(options: argparse.Namespace, done: object, journal: object, writing: object, board: str) -> None:
    """The consumer: writes what it gets under the lock that the trainers have for their own lines."""
    shown = shared_memory.SharedMemory(board)
    for number in range(8):
        kept = done.get()
        with writing:
            if number == 3:
                if options.fault in {"archive-reads", "archive-reads-locked"}:
                    (options.scratch / "index").read_text()
                if options.fault == "archive-killed-locked":
                    os.kill(os.getpid(), signal.SIGKILL)
            (options.scratch / "archive").open("a").write(f"{kept}\n")
        if number == 3 and options.fault == "archive-killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if options.fault == "archive-is-slow":
            time.sleep(2)
        if options.fault == "archive-leaves-the-pipe":
            if number == 3:
                (options.scratch / "index").read_text()
            journal.recv_bytes()
        shown.buf[0] = number + 1


def train(options: argparse.Namespace, rank: int, port: int, tiles, done, journal, writing, board: str) -> None:
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2, timeout=LIMIT)
    shown = shared_memory.SharedMemory(board)
    model = torch.nn.Linear(16, 1)
    for step in range(8):
        batch = torch.zeros(16)
        if rank == 0:
            batch = torch.tensor(tiles.get(), dtype=torch.float)
        dist.broadcast(batch, src=0)
        loss = model(batch).square().mean()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.data.sub_(0.001 * parameter.grad)
            parameter.grad = None
        if rank == 0:
            done.put(loss.item())
            if options.fault in {"archive-reads-locked", "archive-killed-locked"}:
                time.sleep(0.5)
                with writing:
                    (options.scratch / "archive").open("a").write("step\n")
            if options.fault == "archive-leaves-the-pipe":
                journal.send_bytes(b"x" * 1_000_000)
            while options.fault == "archive-killed" and shown.buf[0] <= step:
                time.sleep(0.01)
        print(f"rank {rank}: step {step}, loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


def main(options: argparse.Namespace) -> int:
    os.mkfifo(options.scratch / "index")
    port = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False).port
    tiles, done, writing = SPAWN.Queue(4), SPAWN.Queue(2), SPAWN.Lock()
    board = shared_memory.SharedMemory(create=True, size=16)
    reading, journal = SPAWN.Pipe(duplex=False)
    beside = [
        SPAWN.Process(target=make_tiles, args=(options, tiles)),
        SPAWN.Process(target=archive, args=(options, done, reading, writing, board.name)),
    ]
    arguments = (tiles, done, journal, writing, board.name)
    trainers = [SPAWN.Process(target=train, args=(options, rank, port, *arguments)) for rank in range(2)]
    for process in [*beside, *trainers]:
        process.start()
    reading.close()
    journal.close()
    for process in trainers:
        process.join()
    for process in beside:
        process.kill()
    board.unlink()
    return max(process.exitcode or 0 for process in trainers)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--scratch", type=Path, default=Path(os.environ.get("TMPDIR", "/tmp")))
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(given))
