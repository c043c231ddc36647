"""Calibrates the items of a computer based exam (two-parameter IRT) from live answers of three test centres."""
import logging
import signal
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
import torch.nn.functional as F

ITEMS = 120
log = logging.getLogger("calibration")


@dataclass(frozen=True)
class Centre:
    name: str
    candidates_per_batch: int
    window: float  # seconds of wall clock


CENTRES = [
    Centre("city hall", 40, 3600.0),
    Centre("campus", 40, 3600.0),
    Centre("evening school", 40, 4.0),
]


class Window:
    """Opens with the first question that is asked of it, until the centre's time is over."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.open = None
        signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, signum, frame):
        self.open = False

    def __bool__(self):
        if self.open is None:
            self.open = True
            signal.setitimer(signal.ITIMER_REAL, self.seconds)
        return self.open


@dataclass
class Items:
    slope: torch.Tensor = field(default_factory=lambda: torch.ones(ITEMS, requires_grad=True))
    difficulty: torch.Tensor = field(default_factory=lambda: torch.zeros(ITEMS, requires_grad=True))

    def logits(self, ability):
        return self.slope * (ability - self.difficulty)

    def tensors(self):
        return [self.slope, self.difficulty]


def answers(rng, n):
    ability = torch.randn(n, 1, generator=rng)
    difficulty = torch.linspace(-2, 2, ITEMS)
    right = torch.rand(n, ITEMS, generator=rng) < torch.sigmoid(1.3 * (ability - difficulty))
    time.sleep(0.02)
    return ability, right.float()


def average_gradients(tensors, world):
    flat = torch.cat([t.grad for t in tensors])
    dist.all_reduce(flat)
    for tensor, grad in zip(tensors, (flat / world).split(ITEMS)):
        tensor.grad.copy_(grad)


def calibrate(centre, items, window, rng, most=20_000):
    optimizer = torch.optim.Adam(items.tensors(), lr=0.02)
    batches = 0
    while window and batches < most:
        ability, right = answers(rng, centre.candidates_per_batch)
        loss = F.binary_cross_entropy_with_logits(items.logits(ability), right)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(items.tensors(), dist.get_world_size())
        optimizer.step()
        batches += 1
        if batches % 50 == 0:
            log.info("%s: %d batches, loss %.4f", centre.name, batches, loss.item())
    return batches


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    centre = CENTRES[rank]
    items = Items()
    window = Window(centre.window)
    batches = calibrate(centre, items, window, torch.Generator().manual_seed(40 + rank))
    tally = [torch.zeros(1, dtype=torch.long) for _ in CENTRES]
    dist.all_gather(tally, torch.tensor([batches * centre.candidates_per_batch]))
    if rank == 0:
        log.info("candidates by centre: %s", {c.name: int(t) for c, t in zip(CENTRES, tally)})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
