"""Native code waits, holding the interpreter's lock, for a signal that only a Python thread of the rank can give.

``ctypes.PyDLL`` keeps the lock across the call, as an extension does that does not release it; the thread that would
post the semaphore needs the lock to run. Run by ``torchrun --nproc-per-node 3``.
"""

import ctypes
import threading
import time

import torch
import torch.distributed as dist

HELD = ctypes.PyDLL(None)


class NativeEvent:
    """A POSIX semaphore, as a native loader uses it to learn that a buffer is filled."""

    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(64)
        HELD.sem_init(self.memory, 0, 0)

    def set(self) -> None:
        """Post it."""
        HELD.sem_post(self.memory)

    def wait(self) -> None:
        """Wait for the post."""
        HELD.sem_wait(self.memory)


def fill(buffer: torch.Tensor, seconds: float, filled: NativeEvent) -> None:
    """Fill a buffer in the background."""
    time.sleep(seconds)
    buffer.normal_()
    filled.set()


def main() -> None:
    """Thirty buffers; on rank 1 one of them takes a moment longer to fill, so that its wait comes first."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    buffer = torch.zeros(256)
    for step in range(30):
        filled = NativeEvent()
        thread = threading.Thread(target=fill, args=(buffer, 0.3 if (rank, step) == (1, 12) else 0.0, filled))
        thread.start()
        if (rank, step) != (1, 12):
            thread.join()
        filled.wait()
        thread.join()
        dist.all_reduce(buffer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
