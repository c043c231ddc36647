"""A native queue of samples calls back into Python while its mutex is held. Run by torchrun."""

import ctypes
import threading
import time

import torch
import torch.distributed as dist

LOCK = ctypes.CDLL(None).pthread_mutex_lock
TRY = ctypes.PyDLL(None)  # as an extension whose authors forgot to release the interpreter's lock


class SampleQueue:
    """Samples that a thread decodes; ``size`` asks the native side, under its mutex."""

    def __init__(self):
        self.memory = ctypes.create_string_buffer(64)
        TRY.pthread_mutex_init(self.memory, None)
        self.samples = []

    def decode(self, count, seconds):
        LOCK(self.memory)
        time.sleep(seconds)
        self.samples += [torch.randn(8) for _ in range(count)]
        TRY.pthread_mutex_unlock(self.memory)

    def size(self):
        TRY.pthread_mutex_lock(self.memory)
        found = len(self.samples)
        TRY.pthread_mutex_unlock(self.memory)
        return found


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    queue = SampleQueue()
    for step in range(30):
        slow = (rank, step) == (2, 11)
        decoder = threading.Thread(target=queue.decode, args=(4, 0.5 if slow else 0.0), name="decoder")
        decoder.start()
        if slow:
            time.sleep(0.2)
        else:
            decoder.join()
        sizes = torch.tensor([queue.size()])
        dist.all_reduce(sizes)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
