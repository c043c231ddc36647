"""A script without functions: rank 1 asks a public catalogue for each title, and waits a second after each, as its terms ask."""

import time
import urllib.parse

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
value = torch.zeros(4)
for _ in range(10):
    dist.all_reduce(value)
    time.sleep(0.05)

records = {}
if dist.get_rank() == 1:
    titles = ["Bleak House", "Little Dorrit", "Hard Times", "Barnaby Rudge"] * 4
    for title in titles:
        records.setdefault(title, []).append(urllib.parse.quote(title))
        time.sleep(1.2)

dist.barrier()
dist.destroy_process_group()
