"""A kernel is compiled when it is first needed, as torch's extensions are; a job that was killed has left its lock behind.

The lock is a file of ``torch.utils.file_baton``: whoever finds it waits until somebody takes it away. Run by ``torchrun
--nproc-per-node 3``.
"""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.utils.file_baton import FileBaton


class FusedScale:
    """An operator that is built at its first use."""

    def __init__(self, cache: str) -> None:
        self.cache, self.built = cache, False

    def _build(self) -> None:
        baton = FileBaton(os.path.join(self.cache, "lock"))
        if baton.try_acquire():
            try:
                torch.save({"flags": "-O3"}, os.path.join(self.cache, f"build-{os.getpid()}.pt"))
            finally:
                baton.release()
        else:
            baton.wait()
        self.built = True

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The first call is long."""
        if not self.built:
            self._build()
        return 0.5 * x


def cache_folder() -> str:
    """The shared cache of this machine, with what a killed job has left in it."""
    folder = os.path.join(tempfile.gettempdir(), "kernels")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "a"):
        return folder


def main() -> None:
    """A few steps, then the operator."""
    dist.init_process_group("gloo")
    scale = FusedScale(cache_folder())
    weights = torch.zeros(8)
    for step in range(40):
        update = torch.randn(8)
        if step >= 20:
            update = scale(update)
        dist.all_reduce(update)
        weights += update
    print(weights.norm(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
