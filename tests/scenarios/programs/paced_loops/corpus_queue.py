"""A script without functions: rank 2 empties a list of titles that it looks up, a second apart, while the others wait."""

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

if dist.get_rank() == 2:
    titles, records = ["Persuasion", "Emma", "Sanditon"] * 5, []
    while titles:
        title = titles.pop()
        records.append(urllib.parse.quote(title))
        time.sleep(1.2)

dist.all_reduce(value)
dist.destroy_process_group()
