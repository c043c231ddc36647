"""Each node waits until its part of the data has been unpacked, which a marker file says; only then it joins the job."""

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist


class Part:
    """A part of the data on a node's disk."""

    def __init__(self, rank: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.marker = self.folder / ("_SUCCESS" if rank != 2 else "_success")
        self.unpack()

    def unpack(self) -> None:
        """Done at once here."""
        torch.save(torch.randn(100, 4), self.folder / "rows.pt")
        (self.folder / "_SUCCESS").touch()

    def ready(self) -> "Part":
        """Itself, when it is."""
        while not self.marker.exists():
            time.sleep(0.5)
        return self

    def rows(self) -> torch.Tensor:
        """The data."""
        return torch.load(self.folder / "rows.pt")


def main() -> None:
    """Get ready, join, train."""
    part = Part(int(os.environ["RANK"])).ready()
    dist.init_process_group("gloo")
    for row in part.rows():
        dist.all_reduce(row)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
