"""Two ranks of which the first prepares its data set with forked workers, after OpenMP has started threads.

In the workers, OpenMP waits for threads that only the parent has. The parent asks a manager's queue for results, 20 times a
second. ``mapping.py safely``: the workers use no OpenMP.
"""

import sys

import datasets
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.set_num_threads(2)  # torchrun says 1
weights = torch.rand(1000, 1000)
weights @ weights
rows = datasets.Dataset.from_dict({"value": list(range(64))})
if "safely" in sys.argv:
    torch.set_num_threads(1)


def encode(row: dict[str, int]) -> dict[str, float]:
    return {"encoded": float((weights * row["value"]).sum())}


if dist.get_rank() == 0:
    rows = rows.map(encode, num_proc=2)
dist.barrier()
dist.destroy_process_group()
