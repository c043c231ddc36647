"""Snapshots are exported by a thread; to export the last one cleanly, training holds the model's lock and waits for it.

The thread needs that very lock for each snapshot. Started by a launcher that does not supervise.
"""

import queue
import threading
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class Exporter:
    """Copies weights out of a model in a thread of its own."""

    model: nn.Module
    guard: threading.RLock = field(default_factory=threading.RLock)
    requests: "queue.Queue[int]" = field(default_factory=queue.Queue)
    exported: list[int] = field(default_factory=list)

    def start(self) -> "Exporter":
        """Begin to serve requests."""
        threading.Thread(target=self._serve, name="exporter", daemon=True).start()
        return self

    def _serve(self) -> None:
        while True:
            version = self.requests.get()
            with self.guard:
                self.exported.append(version)
                [p.detach().clone() for p in self.model.parameters()]
            self.requests.task_done()

    def request(self, version: int) -> None:
        """Ask for a snapshot, some time soon."""
        self.requests.put(version)

    def freeze(self, version: int) -> int:
        """A snapshot of exactly this version: no one may change the model until it is there."""
        with self.guard:
            self.request(version)
            self.requests.join()
            return len(self.exported)


def update(exporter: Exporter, steps: int) -> None:
    """Some steps of training."""
    model = exporter.model
    for _ in range(steps):
        model.zero_grad()
        model(torch.randn(4, 3)).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            with exporter.guard:
                parameter.data.add_(parameter.grad, alpha=-0.01)


def main() -> None:
    """Ten rounds; the rank that exports is the one with the disk."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    exporter = Exporter(nn.Linear(3, 3)).start()
    for version in range(10):
        update(exporter, 10)
        if dist.get_rank() == 1:
            if version == 4:
                print("release candidate:", exporter.freeze(version), flush=True)
            else:
                exporter.request(version)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
