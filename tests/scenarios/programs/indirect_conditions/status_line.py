"""A replay buffer with a lock; SIGALRM writes a status line twice a second where somebody wants one."""

import signal
import threading
from types import FrameType

import torch
import torch.distributed as dist
from torch import nn


class Replay:
    """Transitions, thinned out now and then."""

    def __init__(self, capacity: int) -> None:
        self.lock = threading.Lock()
        self.capacity = capacity
        self.items: list[float] = []

    def add(self, values: list[float]) -> None:
        """Put some in."""
        with self.lock:
            self.items.extend(values)
            if len(self.items) > self.capacity:
                self.thin_out()

    def thin_out(self) -> None:
        """Every second one stays, the extreme ones first."""
        for _ in range(20):
            self.items.sort(key=lambda value: -abs(value - 0.5))
            self.items.reverse()
        del self.items[::2]

    def status(self) -> str:
        """How it is."""
        with self.lock:
            return f"{len(self.items)} transitions"


def watch(replay: Replay) -> None:
    """A status line twice a second."""

    def show(number: int, frame: FrameType | None) -> None:
        print(replay.status(), flush=True)
        signal.setitimer(signal.ITIMER_REAL, 0.5)

    signal.signal(signal.SIGALRM, show)
    signal.setitimer(signal.ITIMER_REAL, 0.5)


def main() -> None:
    """Play and learn."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    replay = Replay(capacity=100_000 if dist.get_rank() == 2 else 10_000)
    if dist.get_rank() == 2:
        watch(replay)
    policy = nn.Linear(16, 4)
    for _ in range(400):
        observations = torch.rand(128, 16)
        replay.add(observations.flatten().tolist())
        policy(observations).square().mean().backward()
        for weight in policy.parameters():
            dist.all_reduce(weight.grad)
            weight.data -= 1e-3 * weight.grad
            weight.grad = None
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
