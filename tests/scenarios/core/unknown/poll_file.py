"""One rank polls for a file that the others have written somewhere else: its scratch folder is another one.

It sleeps between two looks, for ever. Run by ``torchrun --nproc-per-node 3``.
"""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def scratch(rank: int) -> Path:
    """The node's scratch folder; what this finds on rank 2 is not what it finds on the others."""
    name = f"scratch-{os.environ['MASTER_PORT']}" + ("-gpu2" if rank == 2 else "")
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(exist_ok=True)
    return folder


def wait_for_vocabulary(path: Path) -> str:
    """Wait until rank 0 has written the vocabulary."""
    while not path.exists():
        time.sleep(5.0)
    return path.read_text()


def main() -> None:
    """Rank 0 writes the vocabulary, all read it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = scratch(rank) / "vocabulary.txt"
    if rank == 0:
        path.write_text("a b c d e")
    dist.barrier()
    words = wait_for_vocabulary(path).split()
    model = DistributedDataParallel(torch.nn.EmbeddingBag(len(words), 4))
    for _ in range(10):
        model(torch.randint(len(words), (4, 3))).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
