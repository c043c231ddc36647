"""A job of two ranks without a launcher. When the file that is named appears rank 1 is killed, and its pid given away at once.

``recycled.py FILE stranger|rank``: the newcomer has the environment of no rank, or that of rank 1 of another job. Needs a PID
namespace, and root in it: the kernel is told which pid is next. Rank 0 waits for rank 1 in ``new_group``, where no one tells it.
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

_LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
_NEWCOMER = """
import time

def newcomer_at_work():
    time.sleep(100000)

newcomer_at_work()
"""


def train() -> None:
    """Some steps together, then a group that rank 1 never comes to."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for _ in range(20):
        dist.all_reduce(torch.ones(16))
    print(f"[rank {dist.get_rank()}] trained\n", end="", flush=True)
    if dist.get_rank() == 1:
        time.sleep(100000)
    dist.new_group(group_desc="evaluation")


def launch(go: Path, newcomer: str) -> None:
    """Start the ranks, kill one when told, and let somebody else have its pid."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    claims = [job | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    ranks = [subprocess.Popen([sys.executable, __file__], env=os.environ | claim) for claim in claims]
    while not go.exists():
        time.sleep(0.02)
    ranks[1].kill()
    ranks[1].wait()
    other = claims[1] | {"MASTER_PORT": "1", "HANGWATCH_JOB": "another"} if newcomer == "rank" else {}
    while True:
        _LAST_PID.write_text(str(ranks[1].pid - 1))
        stranger = subprocess.Popen([sys.executable, "-c", _NEWCOMER], env=os.environ | other)
        if stranger.pid == ranks[1].pid:
            break
        stranger.kill()
        stranger.wait()
    print(f"pid {stranger.pid} is another's", flush=True)
    stranger.wait()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        launch(Path(sys.argv[1]), sys.argv[2])
