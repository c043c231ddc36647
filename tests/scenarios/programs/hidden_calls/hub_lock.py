"""Fine-tuning in stages; each stage's adapters come from a cache folder that is guarded by a lock file."""

import fcntl
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch import nn

JANITOR = """
import sys
from fcntl import LOCK_EX, flock
file = open(sys.argv[1], "w")
flock(file, LOCK_EX)
print("cleaning", flush=True)
sys.stdin.read()
"""


@contextmanager
def exclusively(path: Path):
    """Alone in the cache."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        fcntl.flock(file, fcntl.LOCK_UN)


class Cache:
    """Adapters on disk."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())

    def fetch(self, name: str) -> torch.Tensor:
        """Made where it is not there."""
        path = self.folder / f"{name}.pt"
        with exclusively(self.folder / ".lock"):
            if not path.exists():
                torch.save(torch.zeros(6, 6), path)
            return torch.load(path)


def main() -> None:
    """Five stages of twenty steps; a janitor cleans up on one node, and takes its time."""
    accelerator = Accelerator(cpu=True)
    cache = Cache()
    model = accelerator.prepare(nn.Linear(6, 6))
    janitor = None
    for stage in range(5):
        if stage == 2 and accelerator.process_index == 1:
            command = [sys.executable, "-c", JANITOR, str(cache.folder / ".lock")]
            janitor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            janitor.stdout.read(1)
        adapter = cache.fetch(f"stage-{stage}")
        for _ in range(20):
            accelerator.backward(model(torch.randn(2, 6) @ (adapter + torch.eye(6))).square().mean())
    if janitor:
        janitor.kill()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
