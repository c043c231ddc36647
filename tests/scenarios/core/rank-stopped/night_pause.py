"""Trains on a shared machine; a guard beside each rank pauses it while the machine is too busy."""
import os
import subprocess
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

GUARD = """
pid=$1; quota=$2
while kill -0 $pid 2>/dev/null; do
    sleep 1
    used=$(awk '{print $14 + $15}' /proc/$pid/stat)
    if [ "$used" -gt "$quota" ]; then kill -STOP $pid; exit; fi
done
"""


class Augment:
    """Random crops; a rank with the large images has more to do."""

    def __init__(self, rank):
        self.size = 320 if rank == 1 else 32
        self.generator = torch.Generator().manual_seed(rank)

    def __call__(self):
        image = torch.randn(4, 3, self.size, self.size, generator=self.generator)
        image = nn.functional.avg_pool2d(image, 3, stride=1, padding=1)
        return nn.functional.adaptive_avg_pool2d(image, 16)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 5)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    ticks = os.sysconf("SC_CLK_TCK")
    used = int((time.process_time() + 1.5) * ticks)
    quota = used if rank == 1 else 60 * ticks
    subprocess.Popen(["sh", "-c", GUARD, "guard", str(os.getpid()), str(quota)])
    augment = Augment(rank)
    for step in range(4000):
        x = augment()
        loss = nn.functional.cross_entropy(model(x), x.flatten(1)[:, :5].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.03)
        if step % 20 == 0 and rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
