"""After a training the weights are quantised by another program, which tries many scales for each row."""

import os
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

QUANTISER = '''
import json, sys

source, target = sys.argv[1:3]
with open(source) as file:
    rows = json.load(file)
scales = []
for row in rows:
    largest = max(abs(value) for value in row) or 1.0
    best = None
    for attempt in range(1, 121):
        scale = largest * attempt / 120 / 7
        error = sum((value - scale * max(-7, min(7, round(value / scale)))) ** 2 for value in row)
        if best is None or error < best[0]:
            best = (error, scale)
    scales.append(best[1])
with open(target, "w") as file:
    json.dump(scales, file)
'''


def quantise(weight, folder):
    """Returns a scale for each row, as the other program has found them."""
    import json

    script, source, target = (os.path.join(folder, name) for name in ("quantise.py", "rows.json", "scales.json"))
    with open(script, "w") as file:
        file.write(QUANTISER)
    with open(source, "w") as file:
        json.dump(weight.tolist(), file)
    done = subprocess.run([sys.executable, script, source, target], timeout=600, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    with open(target) as file:
        return json.load(file)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(256, 160), nn.ReLU(), nn.Linear(160, 256)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for step in range(40):
        x = torch.randn(4, 256)
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.04)
    mean = 0.0
    if rank == 0:
        with tempfile.TemporaryDirectory(prefix="quantise-") as folder:
            scales = quantise(model.module[0].weight.detach(), folder)
        mean = sum(scales) / len(scales)
    told = torch.tensor([mean])
    dist.broadcast(told, src=0)
    print(f"rank {rank}: mean scale {told.item():.5f}", flush=True)
    time.sleep(1.0)  # the log is collected once a second
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
