"""Marks go into the school's grade book (SQLite); in the evening the office loads the timetable into the same file."""
import multiprocessing as mp
import os
import sqlite3
import tempfile
import time
from contextlib import closing

import torch
import torch.distributed as dist
import torch.multiprocessing as tmp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS = 3


def office(path, begun, lessons=44):
    """Loads next week's timetable in one transaction, as the office's tool does."""
    with closing(sqlite3.connect(path, isolation_level=None)) as book:
        book.execute("begin immediate")
        begun.set()
        for lesson in range(lessons):
            book.execute("insert into timetable values (?, ?)", (lesson, f"room {lesson % 9}"))
            time.sleep(0.27)
        book.execute("commit")


class GradeBook:
    def __init__(self, path):
        self.book = sqlite3.connect(path, timeout=60)

    def enter(self, rank, marks):
        with self.book:
            self.book.executemany("insert into marks values (?, ?)", [(rank, m) for m in marks])

    def count(self):
        return self.book.execute("select count(*) from marks").fetchone()[0]


def lessons(model, optimizer, gen, steps):
    for _ in range(steps):
        talk = torch.randn(48, 40, 24, generator=gen)
        marks = model(talk.flatten(1)).squeeze(1)
        loss = (marks - talk.mean((1, 2))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return marks.detach()


def school(rank, port, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(RANKS))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(960, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(rank)
    book = GradeBook(path)
    for day in range(3):
        marks = lessons(model, optimizer, gen, 70)
        if rank == 1:
            if day == 1:
                begun = mp.get_context("spawn").Event()
                mp.get_context("spawn").Process(target=office, args=(path, begun)).start()
                begun.wait()
            book.enter(rank, marks.tolist())
        dist.barrier()
        if rank == 0:
            print(f"day {day}: {book.count()} marks in the book", flush=True)
    dist.destroy_process_group()


def free_port():
    import socket
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


if __name__ == "__main__":
    path = os.path.join(tempfile.mkdtemp(prefix="book-"), "grades.sqlite")
    with closing(sqlite3.connect(path)) as fresh:
        fresh.executescript("create table marks (rank int, mark real); create table timetable (lesson int, room text);")
    tmp.spawn(school, args=(free_port(), path), nprocs=RANKS)
