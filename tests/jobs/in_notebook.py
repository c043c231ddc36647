"""What the cells of a notebook do: accelerate's launcher forks two ranks from this process, which hang, and then two that do not.

``in_notebook.py PORT PORT``: a port for each.
"""

import sys
import time

import torch
import torch.distributed as dist
from accelerate import notebook_launcher
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError


def train(hangs: bool) -> None:
    """In a rank: a few steps, of which rank 1 does not come to the last ones."""
    dist.init_process_group("gloo")
    for step in range(10):
        while hangs and dist.get_rank() == 1 and step == 5:
            time.sleep(0.1)
        dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    first, second = sys.argv[1:]
    try:
        notebook_launcher(train, (True,), num_processes=2, use_port=first)
    except ChildFailedError as error:
        print(f"the first cell raised {type(error).__name__}: {error}", flush=True)
    notebook_launcher(train, (False,), num_processes=2, use_port=second)
    print("the second cell is done", flush=True)
