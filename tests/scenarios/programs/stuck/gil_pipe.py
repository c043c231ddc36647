"""A native reader waits in read(2) with the interpreter's lock held, for bytes a thread of the same rank would write.

The reader does not release the lock, so the writer, a Python thread, never runs again. Started by a launcher that does
not supervise.
"""

import ctypes
import os
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

NATIVE = ctypes.PyDLL(None)


class TokenPipe:
    """Tokens come through a pipe from a thread that makes them."""

    def __init__(self, hesitates_at: int | None) -> None:
        self.reader, self.writer = os.pipe()
        self.hesitates_at = hesitates_at
        threading.Thread(target=self._produce, daemon=True).start()

    def _produce(self) -> None:
        for block in range(1000):
            if block == self.hesitates_at:
                time.sleep(1.0)
            os.write(self.writer, bytes([block % 251]) * 4096)

    def next_block(self) -> torch.Tensor:
        """4096 tokens."""
        buffer = ctypes.create_string_buffer(4096)
        NATIVE.read(self.reader, buffer, 4096)
        return torch.frombuffer(bytearray(buffer.raw), dtype=torch.uint8)


def main() -> None:
    """Forty blocks; the thread of rank 0 takes a break before its thirtieth."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tokens = TokenPipe(30 if os.environ["RANK"] == "0" else None)
    model = DistributedDataParallel(torch.nn.EmbeddingBag(256, 8))
    time.sleep(0.5)
    for _ in range(60):
        block = tokens.next_block().view(64, 64).to(torch.long)
        model(block).mean().backward()
        time.sleep(0.02)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
