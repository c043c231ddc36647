"""Rank 0 builds a C++ operator just in time (ninja and g++), the others wait at the barrier before they load it.

Nothing hangs: the build takes half a minute and the job goes on. Run by ``torchrun --nproc-per-node 3``.
"""

import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils import cpp_extension

SOURCE = """
#include <torch/extension.h>

torch::Tensor scaled_relu(torch::Tensor x, double scale) {
  return torch::relu(x) * scale;
}
"""


def load_operator(folder: Path) -> object:
    """Build, or load what has been built."""
    folder.mkdir(exist_ok=True)
    return cpp_extension.load_inline(
        "scaled_relu", SOURCE, functions=["scaled_relu"], build_directory=str(folder), extra_cflags=["-O0"]
    )


def main() -> None:
    """Build on rank 0, load on all, use it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Path(tempfile.gettempdir()) / f"operators-{os.environ['MASTER_PORT']}"
    operator = load_operator(folder) if rank == 0 else None
    dist.barrier()
    if operator is None:
        operator = load_operator(folder)
    values = operator.scaled_relu(torch.randn(64), 2.0)
    dist.all_reduce(values)
    print(f"[rank {rank}] {values.mean().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
