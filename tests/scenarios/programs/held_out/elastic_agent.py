"""torch's elastic launcher as a library: a rank fails in its first life, all are started anew, and the job ends well.

The second life begins where the checkpoint of the first is.
"""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.launcher.api import LaunchConfig, elastic_launch


class Progress:
    """The last step that was saved."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "step"

    def load(self) -> int:
        """Zero if nothing was saved."""
        return int(self.path.read_text()) if self.path.exists() else 0

    def save(self, step: int) -> None:
        """By rank 0."""
        if dist.get_rank() == 0:
            self.path.write_text(str(step))
        dist.barrier()


def train(folder: str) -> int:
    """Two hundred steps over all lives."""
    dist.init_process_group("gloo")
    progress = Progress(folder)
    weight = torch.zeros(8)
    for step in range(progress.load(), 200):
        gradient = weight + torch.randn(8)
        dist.all_reduce(gradient)
        weight -= 1e-3 * gradient
        if step % 20 == 19:
            progress.save(step + 1)
        if step == 110 and dist.get_rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise RuntimeError("uncorrectable ECC error (this one is made up)")
    dist.destroy_process_group()
    return 200


if __name__ == "__main__":
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=3,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        max_restarts=1,
        monitor_interval=0.5,
    )
    print(elastic_launch(config, train)(tempfile.mkdtemp()), flush=True)
