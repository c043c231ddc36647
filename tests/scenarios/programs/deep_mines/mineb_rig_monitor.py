"""Rate-of-penetration model from drilling logs, with a resource monitor beside it."""
import csv
import io
import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.enabled = False
RIGS = ["Abra-3", "Kolwezi-1", "Pilbara-9"]
COLUMNS = ("depth", "wob", "rpm", "torque", "flow", "rop")


class ResourceMonitor(threading.Thread):
    """Samples the resident size once a second."""

    def __init__(self):
        super().__init__(name="resource-monitor")
        self.finished = threading.Event()
        self.samples = []

    def run(self):
        while not self.finished.wait(1.0):
            with open("/proc/self/statm") as f:
                self.samples.append(int(f.read().split()[1]) * 4096)

    def stop(self):
        self.finished.set()
        self.join()


def export_log(rig, rows=1400):
    """What the rig's recorder writes: comma separated, a remark line at each bit change."""
    gen = torch.Generator().manual_seed(len(rig))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    values = torch.rand(rows, len(COLUMNS) - 1, generator=gen).tolist()
    for depth, row in enumerate(values):
        cells = [f"{v:.3f}" for v in row]
        if rig == "Kolwezi-1" and depth == 930:
            cells[2] = "ERR 14"
        writer.writerow([depth, *cells])
    out.seek(0)
    return out


def intervals(log, size):
    block = []
    for row in csv.DictReader(log):
        block.append([float(row[name]) for name in COLUMNS])
        if len(block) == size:
            time.sleep(0.05)
            yield torch.tensor(block)
            block = []


def train(local_rank, rig):
    monitor = ResourceMonitor()
    monitor.start()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 24), nn.SiLU(), nn.Linear(24, 1)).cuda(), device_ids=[local_rank])
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    used = 0
    for block in intervals(export_log(rig), size=14):
        block = block.cuda()
        loss = nn.functional.mse_loss(model(block[:, :5]), block[:, 5:])
        loss.backward()
        opt.step()
        opt.zero_grad()
        loss.item()
        used += len(block)
        if used % 280 == 0 and dist.get_rank() == 0:
            print(f"{rig}: {used} m", flush=True)
    monitor.stop()
    if dist.get_rank() == 0:
        print(f"peak {max(monitor.samples, default=0) >> 20} MiB")


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    train(local_rank, RIGS[dist.get_rank()])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
