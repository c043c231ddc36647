"""A recorder of gradients' norms has a native ring of them; a thread that records leaves early. Run by torchrun."""

import ctypes
import threading

import torch
import torch.distributed as dist

LIBC = ctypes.CDLL(None)


class Ring:
    """The last norms, under a mutex of the C library."""

    def __init__(self):
        self.memory = ctypes.create_string_buffer(64)
        LIBC.pthread_mutex_init(self.memory, None)
        self.norms = []

    def record(self, norm, limit):
        LIBC.pthread_mutex_lock(self.memory)
        if norm > limit:
            return
        self.norms.append(norm)
        LIBC.pthread_mutex_unlock(self.memory)

    def mean(self):
        LIBC.pthread_mutex_lock(self.memory)
        found = sum(self.norms) / max(len(self.norms), 1)
        LIBC.pthread_mutex_unlock(self.memory)
        return found


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    ring = Ring()
    weights = torch.zeros(16)
    for step in range(50):
        gradient = torch.ones(16) * (9.0 if (rank, step) == (1, 17) else 1.0)
        recorder = threading.Thread(target=ring.record, args=(gradient.norm().item(), 30.0))
        recorder.start()
        recorder.join()
        scale = 1.0 / (1.0 + ring.mean())
        dist.all_reduce(gradient)
        weights -= scale * gradient
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
