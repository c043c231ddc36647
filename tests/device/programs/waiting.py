"""A wait, by its name. Lines say how far each rank is; after the time limit torch's watchdog says that it hangs.

``absent``: after a common start, the last rank does not come. ``late``: rank 1 comes to the first collective once a pipe is
written to. ``kinds``, ``sizes``: both come with different operations. ``dies``: rank 1 ends without a word. ``steady``: nothing
is wrong.
"""

import os
import pickle
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
case, limit_s = sys.argv[1], float(sys.argv[2])
if case == "absent" and rank == 1:
    os.environ["SIMULATED_SYNC"] = "block"
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
eager = "eager" in sys.argv
dist.init_process_group("nccl", timeout=timedelta(seconds=limit_s), device_id=device if eager else None)


def say(what: str) -> None:
    print(f"rank {rank}: {what}\n", end="", flush=True)


def states() -> list[str]:
    recorded = pickle.loads(torch._C._distributed_c10d._dump_nccl_trace())  # noqa: S301 - this process's own
    return [entry["state"] for entry in recorded["entries"]]


x = torch.ones(1 << 18, device=device)
if case == "late":
    if rank == 1:
        say("waits for the pipe")
        Path(sys.argv[3]).read_bytes()
    else:
        say("comes to its first collective")
    dist.all_reduce(x)
    say("has launched it")
    torch.cuda.synchronize()
    say("passed")
    sys.exit()

for _ in range(3):
    dist.all_reduce(x)
x[0].item()
if case == "dies" and rank == 1:
    os._exit(0)
if case == "absent" and rank == dist.get_world_size() - 1:
    say("stays away")
    signal.pause()
began = time.monotonic()
if case == "kinds" and rank == 1:
    dist.broadcast(x, src=0)
elif case == "sizes" and rank == 1:
    dist.all_reduce(x[:-1])
else:
    dist.all_reduce(x)
say(f"has launched it: {' '.join(states())}")
x[0].item()
say(f"passed in {1000 * (time.monotonic() - began):.0f} ms")
