"""One rank's data come through a named pipe from a slow converter, a few records every second; the others wait for it.

Slow, never stuck. Run by ``torchrun --nproc-per-node 3``.
"""

import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

CONVERTER = """
import struct, sys, time
with open(sys.argv[1], "wb") as out:
    for number in range(60):
        if number >= 40:
            time.sleep(0.7)
        out.write(struct.pack("<4f", *[number] * 4))
        out.flush()
"""


class Records:
    """Records of four floats from a pipe."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[torch.Tensor]:
        with self.path.open("rb") as pipe:
            while record := pipe.read(16):
                yield torch.tensor(struct.unpack("<4f", record))


def main() -> None:
    """Sixty steps."""
    dist.init_process_group("gloo")
    path = Path(tempfile.mkdtemp()) / "records"
    if dist.get_rank() == 2:
        os.mkfifo(path)
        converter = subprocess.Popen([sys.executable, "-c", CONVERTER, str(path)])
    else:
        path.write_bytes(struct.pack("<4f", 1, 2, 3, 4) * 60)
    for record in Records(path):
        dist.all_reduce(record)
    if dist.get_rank() == 2:
        converter.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
