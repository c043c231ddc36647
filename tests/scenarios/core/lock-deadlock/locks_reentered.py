"""A lock that is not re-entrant is taken twice by one thread: the callback of a registry registers something itself.

Run by ``torchrun --nproc-per-node 2``.
"""

import threading
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Events:
    """Callbacks by name, safe to be used by several threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._callbacks: dict[str, list[Callable[[float], None]]] = {}

    def on(self, name: str, callback: Callable[[float], None]) -> None:
        """Register a callback."""
        self._mutex.acquire()
        self._callbacks.setdefault(name, []).append(callback)
        self._mutex.release()

    def fire(self, name: str, value: float) -> None:
        """Call all callbacks of an event."""
        with self._mutex:
            for callback in self._callbacks.get(name, ()):
                callback(value)


def main() -> None:
    """Train; whoever sees a loss above the limit wants to hear of the next improvement."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    events = Events()
    best: list[float] = []

    def watch(loss: float) -> None:
        if loss > 1000.0:
            events.on("improved", best.append)

    events.on("loss", watch)
    model = DistributedDataParallel(torch.nn.Linear(9, 1))
    for step in range(40):
        scale = 1e4 if (rank, step) == (0, 17) else 1.0
        loss = (model(torch.randn(5, 9)) * scale).square().mean()
        loss.backward()
        events.fire("loss", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
