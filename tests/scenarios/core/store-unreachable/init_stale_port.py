"""The ranks of one machine meet where ``cluster.json`` says; one of them has a copy of yesterday's.

Nobody listens at yesterday's port: that rank tries to connect again and again.
"""

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


def join(folder: Path) -> None:
    """Join as the configuration of this rank's host says."""
    mine = folder / f"cluster-{os.environ['RANK']}.json"
    cluster = json.loads((mine if mine.exists() else folder / "cluster.json").read_text())
    os.environ["MASTER_PORT"] = str(cluster["port"])
    dist.init_process_group("gloo")


def main() -> None:
    """Write the configuration once, join, add up."""
    torch.set_num_threads(1)
    stale = int(sys.argv[1])
    folder = Path(tempfile.gettempdir()) / f"cluster-{os.environ['MASTER_PORT']}"
    folder.mkdir(exist_ok=True)
    port = int(os.environ["MASTER_PORT"])
    for name, at in (("cluster.json", port), (f"cluster-{stale}.json", port - 1 if port > 2048 else port + 1)):
        part = folder / f"{name}.{os.getpid()}"
        part.write_text(json.dumps({"port": at}))
        part.replace(folder / name)
    join(folder)
    total = torch.ones(1)
    dist.all_reduce(total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
