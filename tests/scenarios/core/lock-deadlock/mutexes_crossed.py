"""Feature vectors are kept in native memory: one mutex guards the table, another one its journal. Run by torchrun."""

import ctypes
import threading
import time

import torch
import torch.distributed as dist

LIBC = ctypes.CDLL(None)


class Guard:
    """A mutex of the C library, as an extension has it."""

    def __init__(self):
        self.memory = ctypes.create_string_buffer(64)
        LIBC.pthread_mutex_init(self.memory, None)

    def __enter__(self):
        LIBC.pthread_mutex_lock(self.memory)

    def __exit__(self, *failure):
        LIBC.pthread_mutex_unlock(self.memory)


class Table:
    """Rows by number, each change of which is noted in a journal."""

    def __init__(self, width):
        self.rows = {}
        self.changes = []
        self.width = width
        self.table, self.journal = Guard(), Guard()

    def put(self, number, row, pause):
        with self.table:
            self.rows[number] = row
            time.sleep(pause)
            self.journal.__enter__()
            self.changes.append(number)
            self.journal.__exit__()

    def compact(self, pause):
        """Forget changes of rows that are gone."""
        self.journal.__enter__()
        time.sleep(pause)
        self.table.__enter__()
        self.changes = [number for number in self.changes if number in self.rows]
        self.table.__exit__()
        self.journal.__exit__()


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    table = Table(32)
    for step in range(40):
        slow = (rank, step) == (1, 14)
        cleaner = threading.Thread(target=table.compact, args=(0.4 if slow else 0.0,), name="compaction", daemon=True)
        if step % 7 == 0:
            cleaner.start()
            if slow:
                time.sleep(0.1)
            else:
                cleaner.join()
        row = torch.randn(table.width)
        table.put(step, row, 0.6 if slow else 0.0)
        dist.all_reduce(row)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
