"""Rank 0, which hosts the store, is blocked before it gets there; the others try to connect to it again and again.

It waits for its configuration from a named pipe. The program starts its own ranks, as a shell script does.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


def read_configuration(path: Path) -> dict[str, int]:
    """The configuration that the scheduler hands over."""
    return json.loads(path.read_text())


def train() -> None:
    """Read, join, agree on the seed."""
    torch.set_num_threads(1)
    name = "rank0.json" if os.environ["RANK"] == "0" else "others.json"
    seed = torch.tensor(read_configuration(Path(os.environ["CONFIGURATION"]) / name)["seed"])
    dist.init_process_group("gloo")
    dist.broadcast(seed, src=0)
    dist.destroy_process_group()


def launch(world: int = 3) -> int:
    """Start the ranks and wait for them."""
    folder = Path(tempfile.mkdtemp())
    (folder / "others.json").write_text('{"seed": 7}')
    os.mkfifo(folder / "rank0.json")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
        "CONFIGURATION": str(folder),
    }
    ranks = [
        subprocess.Popen([sys.executable, __file__], env=os.environ | shared | {"RANK": str(r), "LOCAL_RANK": str(r)})
        for r in range(world)
    ]
    return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        sys.exit(launch())
