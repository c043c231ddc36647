"""The scheduler warns a job of its preemption by SIGUSR1; the handler writes a sharded checkpoint at once.

The warning comes to the first process of a node only, here the second rank. Run by ``torchrun --nproc-per-node 4``.
"""

import os
import signal
import tempfile
import threading
from types import FrameType

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard


class Preemptible:
    """Training that can be told to save itself at any moment."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(10, 20), nn.SiLU(), nn.Linear(20, 10))
        fully_shard(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.step = 0
        signal.signal(signal.SIGUSR1, self.on_warning)

    def on_warning(self, number: int, frame: FrameType | None) -> None:
        """Thirty seconds are left: save."""
        print(f"warned at step {self.step}", flush=True)
        self.save()

    def save(self) -> None:
        """Each rank writes its shards."""
        dcp.save({"model": self.model.state_dict(), "step": self.step}, checkpoint_id=self.folder)

    def train(self, steps: int) -> None:
        """Autoencoding."""
        while self.step < steps:
            x = torch.randn(8, 10)
            self.model(x).sub(x).square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
            if self.step == 50 and dist.get_rank() == 1:
                # Stands for slurmd.
                threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGUSR1)).start()


def main() -> None:
    """Two thousand steps."""
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, src=0)
    Preemptible(folder[0]).train(2000)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
